"""Binds the gateway's port at once, listens on it once the instance can serve, and closes it without losing a client.

Instances share a port in one of two ways. Either each has its own socket, and the kernel distributes new connections
among them (SO_REUSEPORT): a socket that closes drops the handshakes that it has begun, so it first turns new ones away.
Or a service manager holds one socket for all of them (`gateway.http.service_manager`), which one instance cannot close.
"""

from __future__ import annotations

import ctypes
import logging
import socket
import struct
import sys

from contracts.errors import ConfigError

BACKLOG = 2_048
SETTING = "gateway.port"
CONNECT_TIMEOUT_S = 0.5
SO_ATTACH_FILTER = 26
"""From asm-generic/socket.h; Python's module lacks it."""
DROP_SYN = (
    # Classic BPF for the packets of a listening socket, from the TCP header on: (code, if true, if false, k).
    (0x30, 0, 0, 13),  # the byte of the flags
    (0x45, 0, 1, 0x02),  # SYN is set: a new connection
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFF_FFFF),  # keep; accepted sockets inherit the filter, and see no SYN
)

logger = logging.getLogger(__name__)


class Listener:
    """One instance's listening socket. `close` is idempotent."""

    def __init__(self, bound: socket.socket, *, shared: bool = False, setting: str = SETTING) -> None:
        """shared: whether other processes accept from the same socket. setting: the port's, for the error."""
        self.socket = bound
        self._setting = setting
        self.shared = shared

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def listen(self) -> None:
        """Let the kernel accept connections for this instance. Raises ConfigError if another program listens by now."""
        try:
            self.socket.listen(BACKLOG)
        except OSError as error:
            raise _unavailable(self.socket.getsockname()[0], self.port, error, self._setting) from None

    def turn_away(self) -> None:
        """Begin no more handshakes, while running ones finish.

        A client without a reply retries after a second (RFC 6298), when this socket is closed and another instance's
        socket accepts it. A shared socket is left as it is.
        """
        if self.shared or sys.platform != "linux":
            return
        program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in DROP_SYN))
        try:
            self.socket.setsockopt(
                socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(DROP_SYN), ctypes.addressof(program))
            )
        except OSError as error:  # a sandbox without filters loses unfinished handshakes
            logger.info("new connections cannot be turned away before the port is closed: %s", error.strerror)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def bind(host: str, port: int, setting: str = SETTING) -> Listener:
    """Bind a socket to a port that several instances can share. It does not listen yet, so that no client waits for an
    instance that may never start. setting: the port's. Raises ConfigError if the port is taken."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise _unavailable(host, port, error, setting) from None
    return Listener(bound, setting=setting)


def listened_on(host: str, port: int) -> bool:
    """Whether a program accepts connections there, even one that shares the port (SO_REUSEPORT). Ended connections, and
    sockets that do not listen, do not count: `slipstream up` reserves its gateways' port with one."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_TIMEOUT_S)
        try:
            probe.connect((host, port))
        except TimeoutError:  # a listener with a full backlog, or one that turns new connections away
            return True
        except OSError:
            return False
        return bool(probe.getsockname() != probe.getpeername())  # the kernel may connect an ephemeral port to itself


def _unavailable(host: str, port: int, error: OSError, setting: str) -> ConfigError:
    return ConfigError(f"{setting}: cannot listen on {host}:{port}: {error.strerror}", param=setting)
