"""A server of a test: aiohttp on a free port of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(answer: Answer | web.Application) -> AsyncIterator[str]:
    """The URL of an application, or of a function that answers every path. A client that leaves cancels its answer."""
    app = answer if isinstance(answer, web.Application) else web.Application()
    if not isinstance(answer, web.Application):
        app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
