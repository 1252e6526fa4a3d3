"""TCP ports of the processes on this machine: free ones are picked once and kept, so that URLs stay the same.

A port is picked some seconds before its process listens on it. The kernel gives clients theirs from the ephemeral range
at any moment: one picked there may be taken by then, so they are picked elsewhere.
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
"""Above what well-known services use, below where Linux' ephemeral range begins unless it was set otherwise."""
TRIES = 200
IPV6_LOOPBACK = "::1"
EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortInUse(ConfigError):
    """Another program has the port."""


def reserve_port(host: str, port: int) -> contextlib.ExitStack:
    """Sockets that keep `host`:`port` until they are closed: only programs of this account that share ports
    (SO_REUSEPORT) can listen there, and they take no connection themselves. `localhost` has two addresses, and a client
    may try each. Raises PortInUse, or ConfigError in one sentence when the port cannot be listened on.
    """
    with contextlib.ExitStack() as kept:
        for address in addresses_of(host):
            try:
                kept.enter_context(_reserved(address, port))
            except OSError as error:
                if host != address == IPV6_LOOPBACK and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue  # a machine without IPv6
                raise _refusal(address, port, error) from None
        return kept.pop_all()


def addresses_of(host: str) -> tuple[str, ...]:
    """The addresses that a client may try for a host to listen on."""
    return ("127.0.0.1", IPV6_LOOPBACK) if host == "localhost" else (host,)


def _reserved(address: str, port: int) -> socket.socket:
    holder = _bind(address, port)
    # A socket that listened and was shut down keeps its port. With SO_REUSEADDR on, a second one could bind.
    holder.shutdown(socket.SHUT_RDWR)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return holder


def _refusal(address: str, port: int, error: OSError) -> ConfigError:
    told = f"port {port} on {address}"
    if error.errno == errno.EADDRINUSE:
        reason = "is in use by another program; stop that one, or choose another port with --port"
        return PortInUse(f"{told} {reason}", param="local.port")
    if error.errno in (errno.EACCES, errno.EPERM):
        reason = "needs privileges we do not have; choose a port above 1023 with --port"
    else:
        reason = f"cannot be opened: {error.strerror or error}; check --host"
    return ConfigError(f"{told} {reason}", param="local.port")


class Ports:
    """Names to ports, kept in a file. A saved port that somebody else took meanwhile is replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved = self._read()
        self._given: dict[str, int] = {}

    def pick(self, name: str) -> int:
        """The port for `name` on 127.0.0.1: as last time when it is still free, else a free one."""
        for port in self._candidates(name):
            if port in self._given.values():
                continue
            try:
                with _bind("127.0.0.1", port) as listener:
                    chosen = int(listener.getsockname()[1])
            except OSError:
                continue
            self._given[name] = chosen
            return chosen
        raise ConfigError("no free TCP port on 127.0.0.1")

    def saved(self, name: str) -> int | None:
        """The port that `name` had last."""
        return self._saved.get(name)

    def _candidates(self, name: str) -> Iterator[int]:
        ephemeral = ephemeral_range()
        if (saved := self._saved.get(name)) is not None and saved not in ephemeral:
            yield saved
        # At random, so that two deployments started at the same moment do not try the same ones.
        tried = random.choices(PICKED, k=TRIES)  # noqa: S311 - no secret
        yield from (port for port in tried if port not in ephemeral)
        yield 0

    def save(self) -> None:
        """Keep what was given, for the next start. Raises ConfigError when it cannot be written."""
        try:
            self._path.write_bytes(msgspec.json.encode({**self._saved, **self._given}))
        except OSError as error:
            raise folder_error(self._path, error) from None

    def _read(self) -> dict[str, int]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])
        except (OSError, msgspec.DecodeError):  # absent, or cut short by a crash: new ports will do
            return {}


def ephemeral_range() -> range:
    """The ports this machine's kernel gives to clients; an empty range where it does not tell."""
    try:
        first, last = map(int, EPHEMERAL_RANGE_FILE.read_text().split())
    except (OSError, ValueError):
        return range(0)
    return range(first, last + 1)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of the last run in TIME_WAIT do not count; a listener does.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1)
    except BaseException:
        listener.close()
        raise
    return listener
