"""The session's SGLang seen through driver and connections."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from contracts.generation import Caller, ChatPrompt, Generation, Sampling, TextPrompt, Tier
from contracts.usage import Usage
from engines.drivers import registry as drivers
from engines.drivers.base import EngineRequest, Load
from engines.drivers.counters import sums_of_page
from engines.drivers.error_bodies import usage_of
from engines.http.engine_connections import EngineConnections
from engines.http.engine_stream import EngineStream
from tests.sglang.server import SGLangServer

DRIVER = drivers.get("sglang")
CHAT = ChatPrompt(({"role": "user", "content": "What is the capital of France?"},))
ENDLESS = {"5": 100.0}
"""A bias that leaves only one token possible: the stream runs until max_tokens."""
GUARD_S = 180.0
"""Against hanging for ever, not a measure: a busy machine may take seconds for a step."""
_numbers = itertools.count(1)


def ask(prompt: ChatPrompt | TextPrompt, salt: str = "", priority: int = 0, **sampling: Any) -> Generation:
    return Generation(
        request_id=f"req_{next(_numbers):032x}",
        caller=Caller("o", "p", "k"),
        tier=Tier.CHAT,
        model="public",
        prompt=prompt,
        sampling=Sampling(**{"max_tokens": 8, "temperature": 0.0, **sampling}),
        cache_salt=salt,
        priority=priority,
    )


class Client:
    """One engine seen through driver and connections."""

    def __init__(self, server: SGLangServer, connections: EngineConnections) -> None:
        self.server = server
        self.connections = connections

    async def open(self, generation: Generation) -> EngineStream:
        return await self.connections.open(self.server.url, DRIVER.generate(generation, self.server.model))

    async def events(self, generation: Generation) -> list[Any]:
        stream = await self.open(generation)
        body = await read_all(stream)
        assert stream.status == 200, body
        return payloads(body)

    async def usage(self, generation: Generation) -> Usage:
        return usage_of((await self.events(generation))[-2]["usage"])

    async def refusal(self, generation: Generation) -> Exception:
        stream = await self.open(generation)
        assert stream.status == 400
        return DRIVER.error(stream.status, await read_all(stream))

    async def fetch(self, request: EngineRequest | None) -> tuple[int, bytes]:
        assert request is not None
        return await self.connections.fetch(self.server.url, request, GUARD_S)

    async def idle(self) -> None:
        """Return once nothing runs or waits there."""
        await self.until_load(lambda load: not load.running + load.waiting)

    async def until_load(self, holds: Callable[[Load], bool]) -> Load:
        """The first report that is so."""
        async with asyncio.timeout(GUARD_S):
            # another process's state: there is nothing to wait on but asking again
            while not holds(load := await self.load()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return load

    async def load(self) -> Load:
        """What it reports now."""
        load = DRIVER.parse_load((await self.fetch(DRIVER.load()))[1])
        assert load is not None
        return load

    async def counter(self, name: str) -> float:
        """One of its page's counters now, all samples together; 0 where it has not counted yet."""
        _, page = await self.fetch(EngineRequest("GET", "/metrics"))
        return sums_of_page(page, lambda found, _: found == name.encode()).get(name.encode(), 0.0)


async def read_all(stream: EngineStream) -> bytes:
    body = b""
    while piece := await stream.read():
        body += piece
    return body


def payloads(body: bytes) -> list[Any]:
    events = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event]
    return [event if event == b"[DONE]" else msgspec.json.decode(event) for event in events]


def finishes(events: list[Any]) -> list[str]:
    choices = [choice for event in events[:-1] for choice in event["choices"]]
    return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
