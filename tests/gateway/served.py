"""A real HTTP server on our protocol, with any limits and any application."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, ParamSpec

import msgspec
import uvicorn
import uvloop

from gateway.http.certificate import Certificate
from gateway.http.client_protocol import ClientProtocol
from gateway.http.config import ConnectionsConfig
from gateway.http.connections import ConnectionTable, Waiting
from gateway.http.listener import Listener, bind
from gateway.http.server import HttpServer
from tests.waiting import GUARD_S, eventually

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
    """A running server. ended: how many connections its limits ended, by reason.

    The clock of these limits is the test's: it stands still until `passes`.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.ended: Counter[str] = Counter()
        self.held = 0
        self.malformed: Counter[str] = Counter()
        self.received = 0
        """Bytes of requests, of all clients."""
        self.serving = asyncio.Event()
        self.table: ConnectionTable
        self.server: HttpServer
        self.listener: Listener
        self.task: asyncio.Task[None]
        """Done when the server has ended."""
        self._peers: list[asyncio.StreamWriter] = []
        self._now_s = 0.0

    def clock(self) -> float:
        """Seconds; no two calls return the same time, so that older and newer differ."""
        self._now_s += 1e-6
        return self._now_s

    def passes(self, duration_s: float) -> None:
        """So much time is over."""
        self._now_s += duration_s
        self.table.sweep()

    def connection_ended(self, reason: str) -> None:
        self.ended[reason] += 1

    def connections_held(self, count: int) -> None:
        self.held = count

    def request_malformed(self, code: str) -> None:
        self.malformed[code] += 1

    async def connect(
        self, sent: bytes = b"", *, receive_buffer: int = 0, **more: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client's connection that has sent this; it ends with the server. receive_buffer: half the bytes that its
        kernel holds for it at most; 0: the kernel's default, often megabytes. more: asyncio's options for TLS."""
        if receive_buffer:
            more["sock"] = client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", self.port))
        else:
            more |= {"host": "127.0.0.1", "port": self.port}
        reader, writer = await asyncio.open_connection(**more)
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

        def counted() -> bool:
            self.table.sweep()
            return self.held == count

        await eventually(counted)

    async def has_ended(self, reason: str, count: int = 1) -> None:
        """Return once so many connections were ended for this reason."""
        await eventually(lambda: self.ended[reason] >= count)

    async def has_received(self, size: int) -> None:
        """Return once clients' bytes are this many."""
        await eventually(lambda: self.received >= size)

    async def waits_for(self, *waiting: Waiting | None) -> None:
        """Return once there is a connection for each, that waits for this; None: for us."""
        await eventually(lambda: sorted(map(str, waiting)) == sorted(str(each.waiting) for each in self.table._held))


@contextlib.asynccontextmanager
async def served(
    app: App, certificate: Certificate | None = None, *, port: int = 0, leave_after_s: float = 0.0, **limits: Any
) -> AsyncIterator[Served]:
    """The server, gone at the end. port: another's, to share it; 0: a free one. leave_after_s: see
    `HttpServer`. limits: fields of ConnectionsConfig that are not the default."""
    config = msgspec.structs.replace(ConnectionsConfig(), **limits)
    with contextlib.closing(bind("127.0.0.1", port)) as listener:
        running = Served(listener.port)
        running.table = table = ConnectionTable(config, running, running.clock)  # type: ignore[arg-type]

        class Counted(ClientProtocol):
            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                if self.transport is not None:  # else TLS is not ready; the bytes come again
                    running.received += len(data)

        http: Any = functools.partial(Counted, table=table, certificate=certificate)
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
            leave_after_s=leave_after_s,
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
            left = list(server.server_state.tasks)  # an application that a test lets wait forever
            for each in left:
                each.cancel()
            await asyncio.gather(*left, return_exceptions=True)
