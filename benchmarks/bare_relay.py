"""The least that a relay in Python can do: it copies bytes between two sockets, as the lower limit for a gateway.

`python -m benchmarks.bare_relay ENGINE_PORT` prints `listening PORT`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class Half(asyncio.Protocol):
    """One of the two sockets of a connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Half | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Front(Half):
    """The client's socket; opens the engine's."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        _, back = await asyncio.get_running_loop().create_connection(Half, "127.0.0.1", self._port)
        back.other, self.other = self, back
        assert back.transport is not None
        back.transport.writelines(self.early)


async def main(engine_port: int) -> None:
    """Relay until killed."""
    server = await asyncio.get_running_loop().create_server(lambda: Front(engine_port), "127.0.0.1", 0)
    print("listening", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
