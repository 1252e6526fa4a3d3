"""Asking an engine about an attempt, whichever release named it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts.errors import EngineFailed
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, Tier
from engines.drivers import registry as drivers
from gateway.metering.journal.engine_usage import EngineUsage
from gateway.metering.journal.records import earlier_engine_request_id, engine_request_id
from tests.fakes.process import FakeEngineProcess, fake_engine

DRIVER = drivers.get("embedded")


async def begun(engine: FakeEngineProcess, *rids: str) -> None:
    """Requests that run and never end by themselves."""
    for rid in rids:
        asked = Generation(
            rid, Caller("o", "p", "k"), Tier.CHAT, "m", ChatPrompt(({"role": "user", "content": "hi"},)), Sampling(9)
        )
        stream = await engine.connections.open(engine.url, DRIVER.generate(asked, "fake"))
        assert await stream.read()


@pytest.mark.parametrize("named", [engine_request_id, earlier_engine_request_id])
@pytest.mark.parametrize("attempt", [0, 1])
async def test_an_attempt_is_found_by_the_name_it_was_given(named: Callable[[str, int], str], attempt: int) -> None:
    async with fake_engine() as engine:
        await engine.control(hang_after_tokens=2, prompt_tokens=7)
        await begun(engine, named("req_a", attempt))
        usage = await EngineUsage(engine.connections, 5.0)(engine.url, "embedded", "req_a", attempt)
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (7, 2)


async def test_one_attempt_is_stopped_and_the_other_goes_on() -> None:
    """Engines abort by prefix."""
    async with fake_engine() as engine:
        await engine.control(hang_after_tokens=2)
        await begun(engine, *(engine_request_id("req_a", attempt) for attempt in range(3)))
        ask = EngineUsage(engine.connections, 5.0)
        assert await ask(engine.url, "embedded", "req_a", 0)
        assert {record["rid"] for record in await engine.recorded() if record["aborted"]} == {"req_a"}
        assert await ask(engine.url, "embedded", "req_a", 2)
        [still] = [record["rid"] for record in await engine.recorded() if not record["aborted"]]
        assert still == engine_request_id("req_a", 1)


async def test_nobody_knows_an_attempt_that_never_came() -> None:
    async with fake_engine() as engine:
        with pytest.raises(EngineFailed, match="no final count for 1-req_a"):
            await EngineUsage(engine.connections, 5.0)(engine.url, "embedded", "req_a", 1)


async def test_an_engine_that_tells_no_usage_is_stopped_by_both_names() -> None:
    async with fake_engine() as engine:
        await engine.control(hang_after_tokens=2)
        names = {named("req_a", 1) for named in (engine_request_id, earlier_engine_request_id)}
        await begun(engine, *names)
        assert await EngineUsage(engine.connections, 5.0)(engine.url, "sglang", "req_a", 1) is None
        assert {record["rid"] for record in await engine.recorded() if record["aborted"]} == names
