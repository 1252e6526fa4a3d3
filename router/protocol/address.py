"""The address of a router: `host:port`, or `unix:` and the path of a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from contracts.errors import ConfigError

_UNIX = "unix:"


class Address(msgspec.Struct, frozen=True):
    """The address of a router. path: of a Unix socket; empty if host and port apply."""

    path: str = ""
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str, param: str) -> Address:
        """The address in a text. Raises ConfigError, which names `param`."""
        if text.startswith(_UNIX) and len(text) > len(_UNIX):
            return cls(path=text.removeprefix(_UNIX))
        host, _, port = text.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ConfigError(
                f"{param}: {text!r} is not a router address; use host:port, [address]:port or unix:/path", param=param
            )
        return cls(host=host.removeprefix("[").removesuffix("]"), port=int(port))

    async def connect(self, protocol: asyncio.Protocol) -> None:
        """Connect `protocol` from the running loop. Raises OSError."""
        loop = asyncio.get_running_loop()
        factory: Callable[[], asyncio.Protocol] = lambda: protocol  # noqa: E731
        if self.path:
            await loop.create_unix_connection(factory, self.path)
        else:
            await loop.create_connection(factory, self.host, self.port)
