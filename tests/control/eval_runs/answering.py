"""A gateway that answers items as its script says, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable

import msgspec
from aiohttp import web

from evals.slices.item import Item, Question, user
from evals.slices.split import Split
from tests.serving import serving

KEY = "sk-slip-known"


class Numbers:
    """A slice whose items ask for their own seed, and whose pools answer every item but those they miss."""

    about, goal, version, fills_gaps = "its own number", 0.9, "1", False

    def __init__(self, name: str, size: int | None = None) -> None:
        self.name = name
        self.size = size

    def item(self, seed: int, split: Split = Split.HELD_OUT) -> Item:
        """Its cluster is the last digit of its seed."""
        question = Question(
            (user(f"{self.name} {seed}"),), str(seed), lambda answer: float(answer == str(seed)), cluster=str(seed % 10)
        )
        return Item(**vars(question), slice=self.name)


class Refused(Exception):
    def __init__(self, status: int, code: str, retry_after: str = "") -> None:
        self.status, self.code, self.retry_after = status, code, retry_after


class Gateway:
    """Use `gateway`. answer: (pool, slice, seed) to the text; may raise Refused."""

    def __init__(self, answer: Callable[[str, str, int], str]) -> None:
        self.answer = answer
        self.asked: Counter[tuple[str, str, int]] = Counter()
        self.in_flight = self.most_in_flight = 0
        self.together: asyncio.Barrier | None = None
        """So many are answered at a time."""
        self.url = ""

    def _answer(self, request: web.Request, name: str, seed: int) -> str:
        if request.headers["authorization"] != f"Bearer {KEY}":
            raise Refused(401, "invalid_api_key")
        pool = request.headers.get("x-slipstream-pool", "")
        self.asked[pool, name, seed] += 1
        return self.answer(pool, name, seed)

    async def _serve(self, request: web.Request) -> web.Response:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.together is not None:
                await self.together.wait()
            body = msgspec.json.decode(await request.read())
            name, seed = body["messages"][0]["content"].split()
            text = self._answer(request, name, int(seed))
        except Refused as refused:
            more = {"retry-after": refused.retry_after} if refused.retry_after else {}
            headers = {"x-request-id": f"req_{seed}"} | more
            error = {"error": {"code": refused.code, "message": "no"}}
            return web.json_response(error, status=refused.status, headers=headers)
        finally:
            self.in_flight -= 1
        return web.json_response({"choices": [{"message": {"content": text}}]}, headers={"x-request-id": f"req_{seed}"})


@contextlib.asynccontextmanager
async def gateway(answer: Callable[[str, str, int], str]) -> AsyncIterator[Gateway]:
    made = Gateway(answer)
    application = web.Application()
    application.router.add_post("/v1/chat/completions", made._serve)
    async with serving(application) as made.url:
        yield made
