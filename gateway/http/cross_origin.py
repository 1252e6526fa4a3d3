"""Lets web pages of named origins call the API (CORS, https://fetch.spec.whatwg.org/#http-cors-protocol).

It is used only if `gateway.cors_origins` names origins. The application that is mounted next to inference is left out,
because a browser sends its cookie along, and no other page may use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.http.client_connection import SCOPE_KEY, ClientConnection
from gateway.http.pace import Pace
from gateway.http.page_origins import ANY
from gateway.wire.errors import Headers

MAX_AGE_S = 600
"""How long a browser caches a preflight's response; Chromium caches it for at most two hours."""
_LIMITS = ("requests", "tokens", "input-tokens", "output-tokens")
EXPOSED = ", ".join(
    [
        "openai-processing-ms, request-id, retry-after, retry-after-ms, server-timing, x-request-id, x-should-retry",
        *(f"x-ratelimit-{figure}-{name}" for figure in ("limit", "remaining", "reset") for name in _LIMITS[:2]),
        *(f"anthropic-ratelimit-{name}-{figure}" for name in _LIMITS for figure in ("limit", "remaining", "reset")),
    ]
).encode()
"""Headers that a page may read in addition to the standard ones."""


class CrossOrigin:
    """An ASGI application around another one. pace: the pace of preflights, which have no key. left_out: whether no
    other origin may call a path, in any spelling."""

    def __init__(self, app: Any, origins: frozenset[bytes], pace: Pace, left_out: Callable[[str], bool]) -> None:
        self._left_out = left_out
        self._app = app
        self._origins = origins
        self._any = ANY.encode() in origins
        self._pace = pace

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request, or uvicorn's lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin: bytes = headers.get(b"origin", b"")
        if not origin or not (self._any or origin in self._origins) or self._left_out(scope["path"]):
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            await self._pace.serve(_Preflight(self._allowed(origin), headers), scope, receive, send)
        else:
            await self._serve(self._allowed(origin), scope, receive, send)

    async def _serve(self, allowed: Headers, scope: Any, receive: Any, send: Any) -> None:
        headers = [*allowed, (b"access-control-expose-headers", EXPOSED)]
        connection: ClientConnection = scope[SCOPE_KEY]
        connection.added = headers  # for answers that bypass ASGI

        async def send_with(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *headers]}
            await send(message)

        await self._app(scope, receive, send_with)

    def _allowed(self, origin: bytes) -> Headers:
        if self._any:
            return [(b"access-control-allow-origin", ANY.encode())]
        return [(b"access-control-allow-origin", origin), (b"vary", b"origin")]


class _Preflight:
    """The response to a browser's preflight of a page's request."""

    def __init__(self, allowed: Headers, request_headers: dict[bytes, bytes]) -> None:
        self._headers = [
            *allowed,
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-max-age", str(MAX_AGE_S).encode()),
        ]
        if wanted := request_headers.get(b"access-control-request-headers"):
            self._headers.append((b"access-control-allow-headers", wanted))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": self._headers})
        await send({"type": "http.response.body", "body": b""})
