"""The embedded Valkey: an append-only file in the data folder, one private socket, nothing on the network."""

from __future__ import annotations

import asyncio

from infra.local.binaries import valkey_binary
from infra.local.child import ChildSpec
from infra.local.folders import DataFolder
from infra.local.spawn import Launch

NAME = "valkey"


class Valkey:
    """Describes the child that serves Valkey."""

    def __init__(self, data: DataFolder) -> None:
        self._data = data
        self._binary = valkey_binary()

    def spec(self) -> ChildSpec:
        """The specification of the child."""
        settings = {
            "port": "0",
            "unixsocket": str(self._data.valkey_socket),
            "unixsocketperm": "700",
            "dir": str(self._data.valkey),
            "appendonly": "yes",
            # Written with every command and flushed each second: a killed process loses nothing, a machine one second.
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        argv = [str(self._binary)]
        for name, value in settings.items():
            argv += [f"--{name}", value]
        return ChildSpec(
            name=NAME,
            launch=Launch(argv=tuple(argv)),
            url=self._data.valkey_url,
            probe=self._probe,
            before_start=self._recover,
        )

    async def _recover(self) -> None:
        # With a socket file but no server, a probe would wait for its timeout instead of failing at once.
        self._data.valkey_socket.unlink(missing_ok=True)

    async def _probe(self) -> bool:
        try:
            async with asyncio.timeout(2):
                reader, writer = await asyncio.open_unix_connection(str(self._data.valkey_socket))
                try:
                    writer.write(b"PING\r\n")
                    return await reader.readline() == b"+PONG\r\n"  # while it loads its file it answers -LOADING
                finally:
                    writer.close()
                    await writer.wait_closed()
        except (OSError, TimeoutError):
            return False
