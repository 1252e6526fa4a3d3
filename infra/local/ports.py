"""TCP ports of the processes on this machine: free ones are picked once and kept, so that URLs stay the same.

A port is picked some seconds before its process listens on it. The kernel may give any port of the ephemeral range to a
client in between, so ports are picked elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec

from contracts.errors import ConfigError
from infra.local.private import folder_error

PICKED = range(20_000, 32_000)
"""Above the ports of well-known services and below Linux's default ephemeral range."""
TRIES = 200
IPV6_LOOPBACK = "::1"
EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortInUse(ConfigError):
    """Raised if another program has the port."""


def reserve_port(host: str, port: int) -> contextlib.ExitStack:
    """Sockets that reserve `host`:`port` until they are closed. Only programs of this account that share ports
    (SO_REUSEPORT) can listen there; the sockets themselves take no connection. `localhost` has two addresses, and a
    client may try each. Raises PortInUse, or ConfigError in one sentence if it is not possible to listen on the port.
    """
    with contextlib.ExitStack() as stack:
        for address in addresses_of(host):
            try:
                stack.enter_context(_reserved(address, port))
            except OSError as error:
                if host != address == IPV6_LOOPBACK and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue  # a machine without IPv6
                raise _refusal(address, port, error) from None
        return stack.pop_all()


def addresses_of(host: str) -> tuple[str, ...]:
    """The addresses that a client of `host` may try."""
    return ("127.0.0.1", IPV6_LOOPBACK) if host == "localhost" else (host,)


def _reserved(address: str, port: int) -> socket.socket:
    holder = _bind(address, port)
    # A socket that listened and was shut down keeps its port. With SO_REUSEADDR on, another socket could bind.
    holder.shutdown(socket.SHUT_RDWR)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return holder


def _refusal(address: str, port: int, error: OSError) -> ConfigError:
    subject = f"port {port} on {address}"
    if error.errno == errno.EADDRINUSE:
        reason = "is in use by another program; stop that one, or choose another port with --port"
        return PortInUse(f"{subject} {reason}", param="local.port")
    if error.errno in (errno.EACCES, errno.EPERM):
        reason = "needs privileges we do not have; choose a port above 1023 with --port"
    else:
        reason = f"cannot be opened: {error.strerror or error}; check --host"
    return ConfigError(f"{subject} {reason}", param="local.port")


class Ports:
    """The port of each name, kept in a file. A saved port that another program took meanwhile is replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved = self._read()
        self._picked: dict[str, int] = {}

    def pick(self, name: str) -> int:
        """The port for `name` on 127.0.0.1: the last one if it is still free, else a free one."""
        for port in self._candidates(name):
            if port in self._picked.values():
                continue
            try:
                with _bind("127.0.0.1", port) as listener:
                    chosen = int(listener.getsockname()[1])
            except OSError:
                continue
            self._picked[name] = chosen
            return chosen
        raise ConfigError("no free TCP port on 127.0.0.1")

    def saved(self, name: str) -> int | None:
        """The port that `name` had last."""
        return self._saved.get(name)

    def _candidates(self, name: str) -> Iterator[int]:
        ephemeral = ephemeral_range()
        if (saved := self._saved.get(name)) is not None and saved not in ephemeral:
            yield saved
        # Random, so that two deployments that start at the same moment do not try the same ports.
        tried = random.choices(PICKED, k=TRIES)  # noqa: S311 - no secret
        yield from (port for port in tried if port not in ephemeral)
        yield 0

    def save(self) -> None:
        """Save the picked ports for the next start. Raises ConfigError if they cannot be written."""
        try:
            self._path.write_bytes(msgspec.json.encode({**self._saved, **self._picked}))
        except OSError as error:
            raise folder_error(self._path, error) from None

    def _read(self) -> dict[str, int]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])
        except (OSError, msgspec.DecodeError):  # absent, or cut short by a crash: new ports are fine
            return {}


def ephemeral_range() -> range:
    """The ports that this machine's kernel gives to clients; an empty range if unknown."""
    try:
        first, last = map(int, EPHEMERAL_RANGE_FILE.read_text().split())
    except (OSError, ValueError):
        return range(0)
    return range(first, last + 1)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # SO_REUSEADDR ignores connections of the last run in TIME_WAIT, but not a listener.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1)
    except BaseException:
        listener.close()
        raise
    return listener
