"""A link to a server that a test can make slow or cut: bytes towards the server arrive `delay_s` late, in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Address = Path | tuple[str, int]
READ_BYTES = 65_536


class SlowLink:
    """Relays every connection made to it. What the server says is never held up. Use `slow_link`."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self.delay_s = 0.0
        """How late bytes that a client sends from now on arrive. One round trip takes that much longer."""
        self._relays: set[asyncio.Task[None]] = set()
        self._down = False

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side closes it."""
        if self._down:
            writer.transport.abort()
            return
        relay = asyncio.create_task(self._relay(reader, writer))
        self._relays.add(relay)

        def over(_: asyncio.Task[None]) -> None:
            self._relays.discard(relay)
            writer.transport.abort()  # also if the relay was cancelled before it began, or while it connected

        relay.add_done_callback(over)

    async def close(self) -> None:
        """Cut all connections."""
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """Cut, and closed to new connections, for the length of a block."""
        self._down = True
        await self.close()
        try:
            yield
        finally:
            self._down = False

    @contextlib.asynccontextmanager
    async def delayed(self, delay_s: float) -> AsyncIterator[None]:
        """Slow for the length of a block; at its end what is still on its way is let arrive."""
        self.delay_s = delay_s
        try:
            yield
        finally:
            self.delay_s = 0.0
            await asyncio.sleep(delay_s)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await connect(self._target)
        except OSError:
            return
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        parts = (self._take(reader, late), _deliver(late, there_writer), _pass_on(there_reader, writer))
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            there_writer.transport.abort()  # before the wait, which a cut may cancel
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, late: asyncio.Queue[tuple[float, bytes]]) -> None:
        clock = asyncio.get_running_loop().time
        while data := await reader.read(READ_BYTES):
            late.put_nowait((clock() + self.delay_s, data))


async def connect(address: Address) -> Streams:
    """A connection to a unix socket or a TCP port."""
    if isinstance(address, Path):
        return await asyncio.open_unix_connection(address)
    return await asyncio.open_connection(*address)


async def _deliver(late: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        due_s, data = await late.get()
        if (wait_s := due_s - clock()) > 0:
            await asyncio.sleep(wait_s)
        sink.write(data)
        await sink.drain()


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(READ_BYTES):
        sink.write(data)
        await sink.drain()


@contextlib.asynccontextmanager
async def slow_link(target: Address, listen: Path | None = None) -> AsyncIterator[tuple[SlowLink, int]]:
    """A link to `target`, and its TCP port; 0 when it listens on the unix socket `listen` instead."""
    link = SlowLink(target)
    if listen is None:
        server = await asyncio.start_server(link.accept, "127.0.0.1", 0)
        port = int(server.sockets[0].getsockname()[1])
    else:
        server, port = await asyncio.start_unix_server(link.accept, listen), 0
    try:
        yield link, port
    finally:
        server.close()
        await link.close()
