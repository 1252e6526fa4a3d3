"""One real engine, asked through a driver and the connections that gateways use."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from contracts.errors import SlipstreamError
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, TextPrompt, Tier
from contracts.usage import Usage
from engines.drivers.base import Driver, EngineRequest, Load
from engines.drivers.error_bodies import event_error, usage_of
from engines.http.engine_connections import EngineConnections
from engines.http.engine_stream import EngineStream
from engines.http.keys import OneKey
from tests.waiting import eventually

GUARD_S = 180.0
"""Against hanging for ever, not a measure: a busy machine may take seconds for a step."""
READY_S = 600.0
"""A guard: ready takes 40 to 90 s on two busy cores, several times as long beside other engines."""
_numbers = itertools.count(1)
_TOKENS = re.compile(rb'"completion_tokens":[1-9]')


def ask(prompt: ChatPrompt | TextPrompt, salt: str = "", priority: int = 0, **sampling: Any) -> Generation:
    """A request; of 8 tokens, greedy, unless it says otherwise."""
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


class RealEngine:
    """model: the name it serves."""

    def __init__(self, driver: Driver, url: str, model: str, connections: EngineConnections) -> None:
        self.driver = driver
        self.url = url
        self.model = model
        self.connections = connections

    async def open(self, generation: Generation) -> EngineStream:
        """The answer, from its status on."""
        return await self.connections.open(self.url, self.driver.generate(generation, self.model))

    async def begun(self, generation: Generation) -> tuple[EngineStream, bytes]:
        """The answer from its first event with a token on, and what came until then."""
        stream, body = await self.open(generation), b""
        while not _TOKENS.search(body):
            piece = await stream.read()
            assert piece, body
            body += piece
        return stream, body

    async def events(self, generation: Generation) -> list[Any]:
        """All of an answer that is none of refusal."""
        stream = await self.open(generation)
        body = await read_all(stream)
        assert stream.status == 200, body
        return payloads(body)

    async def usage(self, generation: Generation) -> Usage:
        """That an answer ends with."""
        return usage_of((await self.events(generation))[-2]["usage"])

    async def text(self, generation: Generation) -> str:
        """Of a chat's or a completion's only choice."""
        return text_of(await self.events(generation))

    async def refusal(self, generation: Generation) -> SlipstreamError:
        """What a request is refused with, by status or by the stream's first event."""
        stream = await self.open(generation)
        body = await read_all(stream)
        if stream.status != 200:
            return self.driver.error(stream.status, body)
        first = payloads(body)[0]
        assert "error" in first, first
        return event_error(msgspec.json.encode(first), self.driver.error)

    async def fetch(self, request: EngineRequest | None) -> tuple[int, bytes]:
        """A small request's status and body."""
        assert request is not None
        return await self.connections.fetch(self.url, request, GUARD_S)

    async def load(self) -> Load:
        """What it reports now."""
        load = self.driver.parse_load((await self.fetch(self.driver.load()))[1])
        assert load is not None
        return load

    async def idle(self) -> None:
        """Return once nothing runs or waits there."""
        await self.until_load(lambda load: not load.running + load.waiting)

    async def until_load(self, holds: Callable[[Load], bool]) -> Load:
        """The first report that is so."""

        async def held() -> Load | None:
            load = await self.load()
            return load if holds(load) else None

        load = await eventually(held, GUARD_S)
        assert load is not None
        return load


async def until_ready(process: asyncio.subprocess.Process, driver: Driver, url: str, token: str, log: Path) -> None:
    """Return once its health is good. Raises AssertionError with the end of its log when it ends before."""
    connections = EngineConnections(OneKey(token))
    try:
        async with asyncio.timeout(READY_S):
            while process.returncode is None:
                with contextlib.suppress(SlipstreamError):
                    if (await connections.fetch(url, driver.health(), 5))[0] == 200:
                        return
                await asyncio.sleep(0.5)
    finally:
        await connections.close()
    said = await asyncio.to_thread(log.read_text)
    raise AssertionError(f"it ended before it was ready:\n{said[-3000:]}")


async def read_all(stream: EngineStream) -> bytes:
    """The rest of an answer."""
    body = b""
    while piece := await stream.read():
        body += piece
    return body


def payloads(body: bytes) -> list[Any]:
    """Its events, decoded but for `[DONE]`."""
    events = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event]
    return [event if event == b"[DONE]" else msgspec.json.decode(event) for event in events]


def finishes(events: list[Any]) -> list[str]:
    """Why choices ended."""
    choices = [choice for event in events[:-1] for choice in event["choices"]]
    return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


def text_of(events: list[Any], index: int = 0) -> str:
    """What one choice says."""
    choices = [choice for event in events[:-1] for choice in event["choices"] if choice["index"] == index]
    return "".join(choice["text"] if "text" in choice else choice["delta"].get("content") or "" for choice in choices)
