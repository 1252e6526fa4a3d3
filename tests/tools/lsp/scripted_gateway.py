"""A server that answers what a test says, one after the other: what a gateway in trouble, or no gateway, would."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from aiohttp import web

from tests.serving import serving


class Asked(NamedTuple):
    method: str
    path: str
    authorization: str
    body: Any


class ScriptedGateway:
    """answers: status, headers and body of what is to come. Reports of what was shown are taken as they come."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        """All but the reports of what was shown."""
        self.viewed: asyncio.Queue[Asked] = asyncio.Queue()
        """Those."""
        self.answers: list[tuple[int, dict[str, str], str]] = []

    def will_answer(self, body: str, status: int = 200, **headers: str) -> None:
        """One more answer. headers: `retry_after="1"`."""
        self.answers.append((status, {name.replace("_", "-"): value for name, value in headers.items()}, body))

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        asked = Asked(request.method, request.path, request.headers.get("authorization", ""), body)
        if isinstance(body, dict) and body.get("type") == "view":
            self.viewed.put_nowait(asked)
            return web.Response(status=202)
        self.asked.append(asked)
        status, headers, text = self.answers.pop(0)
        return web.Response(text=text, status=status, headers=headers, content_type="application/json")


@contextlib.asynccontextmanager
async def scripted_gateway() -> AsyncIterator[ScriptedGateway]:
    """One on a free port. All that it was told to answer must have been asked for."""
    made = ScriptedGateway()
    async with serving(made.answer) as made.url:
        yield made
    assert made.answers == []
