"""Runs uvicorn with a shutdown that loses no request.

1. Responses close their connections, so that clients move to other instances. After SIGTERM, new connections are still
   accepted for a while, in which load balancers notice that /readyz fails.
2. No new handshake begins, and running ones finish. The port is closed, and connected clients send their requests.
3. Idle connections are closed, and running requests finish.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from gateway.http.certificate import Certificate
from gateway.http.client_protocol import ClientProtocol
from gateway.http.connections import ConnectionTable
from gateway.http.listener import BACKLOG, Listener

HANDSHAKES_S = 0.5
"""How long running handshakes may take, and connected clients may send another request. It is less than the second
after which a client retries, which then finds the port closed here and open at another instance."""
FIRST_REQUEST_S = 2.0
"""Longest wait for a connection's first request, TLS included, once the port is closed."""
LOOK_S = 0.02
ACCEPTED_AT_ONCE = 8
"""Connections accepted in one turn of the event loop. libuv accepts one for each descriptor in a turn: with one
descriptor, 200 clients that connect at once wait 200 turns, each of which handles all tokens that have arrived."""


def http_server(
    app: Any,
    listener: Listener,
    table: ConnectionTable,
    certificate: Certificate | None,
    *,
    drain_timeout_s: float,
    leave_after_s: float,
    on_serving: Callable[[], None],
    on_exit: Callable[[], None],
) -> HttpServer:
    """Create a server of this application with `ClientProtocol`. See `HttpServer`."""
    config = uvicorn.Config(
        app,
        interface="asgi3",
        http=functools.partial(ClientProtocol, table=table, certificate=certificate),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(drain_timeout_s)),
        backlog=BACKLOG,
    )
    return HttpServer(config, listener, table, leave_after_s=leave_after_s, on_serving=on_serving, on_exit=on_exit)


class HttpServer(uvicorn.Server):
    """One instance's HTTP server."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: Listener,
        table: ConnectionTable,
        *,
        leave_after_s: float = 0.0,
        on_serving: Callable[[], None] = lambda: None,
        on_exit: Callable[[], None] = lambda: None,
    ) -> None:
        """leave_after_s: how long connections are still accepted after a SIGTERM. on_serving: called when connections
        are accepted. on_exit: called by `leave`."""
        super().__init__(config)
        self._listener = listener
        self._table = table
        self._on_serving = on_serving
        self._on_exit = on_exit
        self._leave_after_s = leave_after_s
        self._lingers = False

    def leave(self, *, linger: bool = False) -> None:
        """Begin the shutdown. linger: whether to keep accepting connections for `leave_after_s`."""
        self._lingers = linger
        self.should_exit = True
        self._table.draining = True
        self._on_exit()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Replaces uvicorn's signal handler, which raises each signal again after serving: the process would then end
        before the gateway's parts have written their data."""
        if not self.should_exit:
            self.leave(linger=sig == signal.SIGTERM)
            return
        self._lingers = False  # a second signal ends the lingering
        if sig == signal.SIGINT:
            self.force_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. The signal handlers are already set, so no signal ends the process with connections in the socket's
        queue. Raises ConfigError if the port is unavailable."""
        self._listener.listen()
        bound = self._listener.socket
        # the sockets are closed with their servers
        await super().startup(sockets=[bound, *(bound.dup() for _ in range(ACCEPTED_AT_ONCE - 1))])
        self._on_serving()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down. A second signal ends the lingering, and a second Ctrl-C cuts each wait short."""
        await self._wait(self._leave_after_s, lambda: not self._lingers)
        if self._listener.shared:  # other processes share its queue
            self._stop_listening()
        self._listener.turn_away()
        await self._wait(HANDSHAKES_S)
        self._stop_listening()
        await self._wait(FIRST_REQUEST_S, lambda: self._table.heads == 0)
        await super().shutdown()

    def _stop_listening(self) -> None:
        for server in self.servers:
            server.close()
        self._listener.close()

    async def _wait(self, timeout_s: float, over: Callable[[], bool] = lambda: False) -> None:
        clock = asyncio.get_running_loop().time
        end_s = clock() + timeout_s
        while clock() < end_s and not over() and not self.force_exit:  # noqa: ASYNC110  like uvicorn's
            await asyncio.sleep(LOOK_S)
