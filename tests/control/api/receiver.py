"""A customer's server: takes deliveries over HTTP, answers as a test says, and remembers what came."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from aiohttp import web

from tests.serving import serving


class Delivered(msgspec.Struct, frozen=True):
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = msgspec.json.decode(self.body)
        return event


class Receiver:
    def __init__(self) -> None:
        self.port = 0
        self.answers: list[int] = []
        """Statuses of the next answers; 200 when it is empty. 0: no answer at all."""
        self.came: list[Delivered] = []
        self.location = "/elsewhere"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def handle(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.came.append(Delivered(headers, await request.read()))
        status = self.answers.pop(0) if self.answers else 200
        if status == 0:
            await asyncio.Event().wait()
        return web.Response(status=status, headers={"location": self.location} if 300 <= status < 400 else {})


@contextlib.asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    async with serving(made.handle) as url:
        made.port = int(url.rpartition(":")[2])
        yield made


@contextlib.asynccontextmanager
async def tar_pits(count: int) -> AsyncIterator[list[Receiver]]:
    """Servers that take a request and never answer."""
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(receiver()) for _ in range(count)]
        for server in servers:
            server.answers = [0] * 1_000
        yield servers
