"""How long an engine may be silent, by a clock that says what the test says: only events break its silence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from engines.http.engine_stream import EngineStream
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import GUARD_S, Harness, body, harness
from tests.gateway.serving.stepped_engine import SteppedEngine, stepped_engine

FIRST_EVENT_S, EVENT_S = 120.0, 60.0
BEGAN_S = 1_000.0
COMMENT = b": ping\n\n"
HALF = b'data: {"id":"r","choices":['


class Stage:
    """One stream under way. Times are seconds since the answer began."""

    def __init__(self, engine: SteppedEngine, platform: Harness) -> None:
        self.client = Client()
        self.now_s = BEGAN_S
        self.taken: asyncio.Queue[bytes] = asyncio.Queue()
        self._engine = engine
        self._idle = platform.idle

    async def says(self, at_s: float, said: str | bytes) -> None:
        """The engine writes an event with this text, or these bytes of its stream, and the gateway has read them."""
        self.now_s = BEGAN_S + at_s
        if isinstance(said, str):
            await self._engine.say(said)
        else:
            await self._engine.write(b"%x\r\n%b\r\n" % (len(said), said))
        await self.taken.get()

    def given_up(self, at_s: float) -> bool:
        """Whether the sweep at that time ends the wait for the engine."""
        (wait,) = self._idle._waits
        self._idle.sweep(BEGAN_S + at_s)
        return wait.on_stall is None

    def take(self, stream: EngineStream) -> bytes:
        """`EngineStream.take`, which is passed on before anybody else's turn."""
        data = ORIGINAL_TAKE(stream)
        if data:
            self.taken.put_nowait(data)
        return data


ORIGINAL_TAKE = EngineStream.take


@contextlib.asynccontextmanager
async def stage(monkeypatch: pytest.MonkeyPatch, *, stream: bool = True) -> AsyncIterator[Stage]:
    """The engine has begun with a comment. It ends with the engine given up, which its client is told."""
    limits: dict[str, Any] = {"first_event_timeout_s": FIRST_EVENT_S, "event_timeout_s": EVENT_S, "max_attempts": 1}
    async with stepped_engine() as (engine, place), harness(engines=0, **limits) as platform, asyncio.timeout(GUARD_S):
        platform.router.engines = (place,)
        on = Stage(engine, platform)
        clock = SimpleNamespace(monotonic=lambda: on.now_s)
        monkeypatch.setattr("gateway.serving.stream.time", clock)
        monkeypatch.setattr("gateway.serving.idle_timeout.time", clock)
        monkeypatch.setattr(EngineStream, "take", lambda stream: on.take(stream))
        task = asyncio.create_task(platform.serve(on.client, body(stream=stream)))
        try:
            await on.says(0, COMMENT)
            yield on
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    answer = on.client.answer
    assert (answer.events[-1] if answer.status == 200 else answer.json)["error"]["code"] == "engine_timeout"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("said", [COMMENT, HALF], ids=["a comment", "half an event"])
async def test_comments_and_half_events_change_nothing_of_the_wait_for_the_first(
    monkeypatch: pytest.MonkeyPatch, said: bytes, stream: bool
) -> None:
    async with stage(monkeypatch, stream=stream) as on:
        await on.says(10, said)
        assert not on.given_up(10 + EVENT_S + 1)
        await on.says(FIRST_EVENT_S - 1, b"\n\n" if said is COMMENT else b" ")
        assert not on.given_up(FIRST_EVENT_S - 1)
        assert on.given_up(FIRST_EVENT_S + 1)


@pytest.mark.parametrize("stream", [True, False])
async def test_comments_do_not_extend_the_wait_for_the_next_event(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    async with stage(monkeypatch, stream=stream) as on:
        await on.says(100, "a")
        assert not on.given_up(100 + EVENT_S - 1)
        await on.says(150, "b")
        for at_s in (160.0, 180.0, 209.0):
            await on.says(at_s, COMMENT)
            assert not on.given_up(at_s)
        assert on.given_up(150 + EVENT_S + 1)
