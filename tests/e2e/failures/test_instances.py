"""Two gateways on one port: each tells what it has done itself, and together that is everything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import openai

from tests.deployment import Deployment
from tests.e2e.failures.engine_place import end_on_engine
from tests.e2e.failures.live_stream import LiveStream, open_on_both, record_of
from tests.e2e.failures.processes import all_ready, kill, no_restarts
from tests.e2e.failures.scrape import increase, scrape, scrape_each, targets, total
from tests.fakes.process import FakeEngineProcess
from tests.waiting import eventually

MESSAGES: list[Any] = [{"role": "user", "content": "Hello."}]


async def idle(trial: Deployment) -> None:
    """Return once every request is counted, which is after its last byte has gone."""

    async def none_active() -> bool:
        return total(await scrape(trial), "slipstream_active_requests") == 0

    await eventually(none_active)


async def finish(streams: Iterable[LiveStream], engines: list[FakeEngineProcess]) -> None:
    """Let them end well."""
    for stream in streams:
        engine, _ = await record_of(engines, stream.request_id)
        await end_on_engine(engine, stream.request_id)
        await stream.finished()


async def test_each_instance_tells_its_own_and_together_it_is_all(
    trial_client: openai.AsyncOpenAI, trial: Deployment, trial_engines: list[FakeEngineProcess]
) -> None:
    for engine in trial_engines:
        await engine.control(tokens=100_000, inter_token_s=0.01, prompt_tokens=7)
    await idle(trial)
    before = await scrape_each(trial)
    streams = await open_on_both(trial_client, trial, at_least=4)
    own = {name: sum(stream.gateway == name for stream in streams) for name in ("gateway-1", "gateway-2")}
    while_served = await scrape_each(trial)
    assert {name: total(told, "slipstream_active_requests", tier="chat") for name, told in while_served.items()} == own
    await finish(streams, trial_engines)

    await idle(trial)
    after = await scrape_each(trial)
    assert set(after) == {"gateway-1", "gateway-2"}
    for name, count in own.items():
        well = {"status": "200", "code": "none", "tier": "chat"}
        assert increase(before, {name: after[name]}, "slipstream_requests_total", **well) == count
    records = [record for engine in trial_engines for record in await engine.recorded()]

    def grown(name: str, **labels: str) -> float:
        return increase(before, after, name, **labels)

    assert grown("slipstream_requests_total", status="200", code="none", tier="chat") == len(streams)
    assert grown("slipstream_attempts_total", finish="complete", outcome="exact") == len(streams)
    assert grown("slipstream_tokens_total", kind="completion") == sum(record["tokens"] for record in records)
    assert grown("slipstream_tokens_total", kind="prompt") == 7 * len(streams)
    assert grown("slipstream_phase_seconds_count", phase="decode") == len(streams)


async def test_a_killed_instance_begins_anew_at_the_same_target_and_leaves_the_others_alone(
    trial_client: openai.AsyncOpenAI, trial: Deployment, trial_engines: list[FakeEngineProcess]
) -> None:
    for engine in trial_engines:
        await engine.control(tokens=3)
    for _ in range(10):
        await trial_client.chat.completions.create(model="fake", messages=MESSAGES)
    for engine in trial_engines:
        await engine.control(tokens=100_000, inter_token_s=0.01)

    await idle(trial)
    listed, before = targets(trial), await scrape_each(trial)
    streams = await open_on_both(trial_client, trial, at_least=2)
    lost = [stream for stream in streams if stream.gateway == "gateway-1"]
    kept = [stream for stream in streams if stream.gateway == "gateway-2"]
    async with no_restarts(trial):
        await kill(trial, "gateway-1")
        alone = await scrape_each(trial)
        assert set(alone) == {"gateway-2"}
        for name in ("slipstream_requests_total", "slipstream_tokens_total", "slipstream_attempts_total"):
            assert increase(before, alone, name) == 0
    for stream in lost:
        await stream.failure()
    await all_ready(trial)
    assert targets(trial) == listed
    after = await scrape_each(trial)
    assert total(after["gateway-1"], "slipstream_active_requests") == 0
    assert total(after["gateway-1"], "slipstream_requests_total") == 0
    assert total(after["gateway-2"], "slipstream_active_requests") == len(kept)
    assert {total(told, "slipstream_journal_healthy") for told in after.values()} == {1}
    await finish(kept, trial_engines)
    await idle(trial)
    assert increase(before, await scrape_each(trial), "slipstream_requests_total") == len(kept)
