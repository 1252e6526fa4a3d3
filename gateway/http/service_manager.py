"""Implements the protocols of systemd and compatible service managers: sd_listen_fds(3) and sd_notify(3).

Their variables are no settings, because the manager sets them for one process.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping

from contracts.errors import ConfigError
from gateway.http.listener import Listener

FIRST_DESCRIPTOR = 3
READY = "READY=1"
STOPPING = "STOPPING=1"

logger = logging.getLogger(__name__)


def inherited_listener(environment: Mapping[str, str], pid: int, port: int) -> Listener | None:
    """The listening socket that the manager holds for this process and for others; None without one.

    port: the configured one, which clients, probes and the start's log name. Raises ConfigError unless the manager
    passes exactly one TCP socket that listens on it.
    """
    count = environment.get("LISTEN_FDS", "0")
    if environment.get("LISTEN_PID") != str(pid) or count == "0":
        return None
    if count != "1":
        raise ConfigError(f"LISTEN_FDS is {count}: the socket unit must have one ListenStream=")
    try:
        sock = socket.socket(fileno=FIRST_DESCRIPTOR)
        listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigError(f"LISTEN_FDS is 1, but descriptor 3 is not a socket: {error.strerror}") from None
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM or not listens:
        raise ConfigError("the socket unit must listen on a TCP port: ListenStream=127.0.0.1:8000, Accept=no")
    sock.set_inheritable(False)
    sock.setblocking(False)
    listener = Listener(sock, shared=True)
    if listener.port != port:
        raise ConfigError(
            f"gateway.port: is {port}, but the socket unit listens on {listener.port}; make them the same",
            param="gateway.port",
        )
    return listener


def notify(environment: Mapping[str, str], state: str) -> None:
    """Notify the manager, if it has requested that. A failure is only logged."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(1.0)
            # a leading @ means the zero byte of Linux's abstract names
            sender.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
    except OSError as error:
        logger.warning("could not notify the service manager (%s): %s", state, error)
