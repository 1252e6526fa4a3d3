"""A wire to PostgreSQL that a test can cut or hold."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


class Wire:
    """Relays a unix socket to PostgreSQL's. `held`: bytes of the server stop there. `cut()`: as if it were gone."""

    def __init__(self, url: str, folder: Path) -> None:
        parts = urlsplit(url)
        self._target = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._path = folder / ".s.PGSQL.5432"
        self.url = f"postgresql://{parts.netloc}{parts.path}?host={folder}"
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.asked = asyncio.Event()
        """Set when the client has sent something while the wire was held, or an answer has stopped there."""
        self._is_cut = False
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """Accept connections."""
        self._is_cut = False
        self._server = await asyncio.start_unix_server(self._accept, self._path)

    async def cut(self) -> None:
        """Refuse new connections and close the present ones."""
        assert self._server is not None
        self._is_cut = True
        self._server.close()
        self._path.unlink(missing_ok=True)
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hold(self) -> None:
        """From now on nothing the server says arrives, and nobody is told."""
        self.asked.clear()
        self.flowing.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_unix_connection(self._target)
        except BaseException:
            writer.transport.abort()
            raise
        if self._is_cut:  # while this one was being made: nobody else would close it
            writer.transport.abort()
            there_writer.transport.abort()
            return
        self._writers |= {writer, there_writer}
        for source, sink, from_server in ((reader, there_writer, False), (there_reader, writer, True)):
            task = asyncio.create_task(self._pump(source, sink, from_server))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, from_server: bool) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await source.read(65_536):
                    if not self.flowing.is_set():
                        self.asked.set()
                    if from_server:
                        await self.flowing.wait()
                    sink.write(data)
                    await sink.drain()
        finally:
            sink.transport.abort()
