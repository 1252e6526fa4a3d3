"""Serves a page that never changes: rendered at the first request, and not sent again to a client that has it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler


def document_route(path: str, make: Callable[[], bytes]) -> HTTPRouteHandler:
    """Create a JSON document's GET route. It needs no key, and answers 304 to the ETag. make: runs in a thread."""
    document = _Document(make)

    @get(path, name=f"document {path}")
    async def show(request: Request[Any, Any, State]) -> Response[bytes]:
        body, etag = await document.made()
        headers = {"etag": etag, "cache-control": "no-cache"}
        known = request.headers.get("if-none-match", "")
        if etag in known or known == "*":
            return Response(b"", status_code=304, headers=headers)
        return Response(body, headers=headers, media_type="application/json")

    return show


class _Document:
    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._making = asyncio.Lock()
        self._made: tuple[bytes, str] | None = None

    async def made(self) -> tuple[bytes, str]:
        """Render the page, with its ETag."""
        async with self._making:
            if self._made is None:
                body = await asyncio.to_thread(self._make)
                self._made = body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        return self._made
