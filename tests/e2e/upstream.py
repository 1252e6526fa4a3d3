"""A hosted OpenAI-compatible service: it knows one API key, and remembers every header it was ever sent."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import AsyncIterator

from aiohttp import web


class Upstream:
    """key: the one it takes; "" takes requests without any, and only those."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.url = ""
        self.runner: web.AppRunner | None = None
        self.seen: list[tuple[str, str]] = []
        """Path and Authorization header (empty: none) of every request."""

    @property
    def authorizations(self) -> set[str]:
        return {authorization for _, authorization in self.seen}

    async def stop(self) -> None:
        """Nobody listens there any more."""
        if self.runner is not None:
            await self.runner.cleanup()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        sent = request.headers.get("authorization", "")
        self.seen.append((request.path, sent))
        if sent != (f"Bearer {self.key}" if self.key else ""):
            return web.json_response({"error": {"message": "Incorrect API key provided."}}, status=401)
        if request.method == "GET":
            return web.json_response({"object": "list", "data": []})
        body = await request.json()
        assert body["stream"]
        assert body["stream_options"]["include_usage"]
        common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        choice = {"index": 0, "delta": {"role": "assistant", "content": "Bonjour"}, "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for chunk in ({"choices": [choice]}, {"choices": [end]}, {"choices": [], "usage": usage}):
            await response.write(b"data: " + json.dumps({**common, **chunk}).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response


@contextlib.asynccontextmanager
async def upstream(key: str, context: ssl.SSLContext | None = None) -> AsyncIterator[Upstream]:
    """One on a free port of this machine; https with a context."""
    made = Upstream(key)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = made.runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    port = runner.addresses[0][1]
    made.url = f"https://localhost:{port}" if context else f"http://127.0.0.1:{port}"
    try:
        yield made
    finally:
        await runner.cleanup()
