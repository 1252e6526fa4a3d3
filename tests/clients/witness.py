"""A proxy between clients and the gateway that remembers what was requested, so that no client judges itself.

A client's base URL is `/ROW/FEATURE` of the proxy; the rest of the path is the gateway's.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import NamedTuple

import aiohttp
from aiohttp import web

from tests.serving import serving

PER_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "host", "content-length", "upgrade", "expect"})

LIMITED = "retry_429"
"""The feature whose first request finds its key's limit used up."""
MAX_REPEATED = 200


class Exchange(NamedTuple):
    """One request and its status; 0 while it has none."""

    method: str
    path: str
    status: int
    message: str
    """The beginning of an error's body."""


class Witness:
    """seen: the exchanges of each row and feature, in order of their ends."""

    def __init__(self, gateway_url: str, session: aiohttp.ClientSession) -> None:
        self.seen: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
        self.url = ""
        self._gateway_url = gateway_url
        self._session = session

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Pass the request on and its response back as it arrives."""
        row, feature, rest = request.match_info["row"], request.match_info["feature"], request.match_info["rest"]
        seen = self.seen[row, feature]
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in PER_HOP]
        target = f"{self._gateway_url}/{rest}" + (f"?{request.query_string}" if request.query_string else "")
        body = await request.read()
        if feature == LIMITED and request.method == "POST" and not seen:
            await self._use_up(target, headers, body)
        async with self._session.request(
            request.method, target, headers=headers, data=body, allow_redirects=False
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in PER_HOP:
                    response.headers.add(name, value)
            error = await answer.read() if answer.status >= 400 else b""
            seen.append(Exchange(request.method, "/" + rest, answer.status, error[:400].decode(errors="replace")))
            with contextlib.suppress(ConnectionError):  # the client has left
                await response.prepare(request)
                await response.write(error)
                async for data in answer.content.iter_any():
                    await response.write(data)
                await response.write_eof()
            return response

    async def _use_up(self, target: str, headers: list[tuple[str, str]], body: bytes) -> None:
        """Send the client's first request until its key's limit refuses it, so that the limit refuses the client."""
        for _ in range(MAX_REPEATED):
            async with self._session.post(target, headers=headers, data=body) as answer:
                await answer.read()
                if answer.status == 429:
                    return
        raise web.HTTPInternalServerError(text="the key of this feature has no limit")


@contextlib.asynccontextmanager
async def witness(gateway_url: str) -> AsyncIterator[Witness]:
    """One on a free port of this machine."""
    async with aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)) as session:
        made = Witness(gateway_url, session)
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{row}/{feature}/{rest:.*}", made.forward)
        async with serving(app) as made.url:
            yield made
