"""A real HTTP server on our protocol, with any limits and any application."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, ParamSpec

import msgspec
import uvicorn
import uvloop

from gateway.http.certificate import Certificate
from gateway.http.client_protocol import ClientProtocol
from gateway.http.config import ConnectionsConfig
from gateway.http.connections import ConnectionTable
from gateway.http.listener import Listener, bind
from gateway.http.server import HttpServer

GUARD_S = 30.0
"""Nothing takes this long unless a test fails."""
App = Callable[[Any, Any, Any], Awaitable[None]]


P = ParamSpec("P")


def on_uvloop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a test on the gateway's own loop: what closes when, and what a full buffer is, differ."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(*arguments, **named))

    return run


class Served:
    """A running server. ended: how many connections its limits ended, by reason."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ended: Counter[str] = Counter()
        self.held = 0
        self.malformed: Counter[str] = Counter()
        self.changed = asyncio.Event()
        self.serving = asyncio.Event()
        self.server: HttpServer
        self.listener: Listener
        self.task: asyncio.Task[None]
        """Done when the server has ended."""
        self._peers: list[asyncio.StreamWriter] = []

    def connection_ended(self, reason: str) -> None:
        self.ended[reason] += 1

    def connections_held(self, count: int) -> None:
        self.held = count
        self.changed.set()

    def request_malformed(self, code: str) -> None:
        self.malformed[code] += 1

    async def connect(self, sent: bytes = b"", **more: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client's connection that has sent this; it ends with the server. more: as of asyncio, for TLS."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **more)
        self._peers.append(writer)
        writer.write(sent)
        return reader, writer

    async def leave(self) -> None:
        """All its clients' connections end."""
        for writer in self._peers:
            writer.transport.abort()
        for writer in self._peers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def holds(self, count: int) -> None:
        """Return once a sweep has counted so many connections."""
        await self._until(lambda: self.held == count)

    async def has_ended(self, reason: str, count: int = 1) -> None:
        """Return once so many connections were ended for this reason."""
        await self._until(lambda: self.ended[reason] >= count)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.changed.clear()
            await self.changed.wait()


@contextlib.asynccontextmanager
async def served(
    app: App, certificate: Certificate | None = None, *, port: int = 0, **limits: Any
) -> AsyncIterator[Served]:
    """The server, gone at the end. port: another's, to share it; 0: a free one. limits: fields of ConnectionsConfig
    that are not the default."""
    config = msgspec.structs.replace(ConnectionsConfig(), **limits)
    with contextlib.closing(bind("127.0.0.1", port)) as listener:
        running = Served(listener.port)
        table = ConnectionTable(config, running)  # type: ignore[arg-type]
        http: Any = functools.partial(ClientProtocol, table=table, certificate=certificate)
        server = HttpServer(
            uvicorn.Config(
                app,
                http=http,
                ws="none",
                lifespan="off",
                log_config=None,
                server_header=False,
            ),
            listener,
            table,
            on_serving=running.serving.set,
        )
        running.server, running.listener = server, listener
        table.task.start()
        running.task = task = asyncio.create_task(server.serve())
        try:
            async with asyncio.timeout(GUARD_S):
                await running.serving.wait()
                yield running
        finally:
            await running.leave()
            server.should_exit = server.force_exit = True
            await task
            await table.task.stop()
