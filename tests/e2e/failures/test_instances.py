"""Two gateways on one port are one gateway to whoever scrapes it."""

from __future__ import annotations

from typing import Any

import openai

from tests.deployment import Deployment
from tests.e2e.failures.engine_place import end_on_engine
from tests.e2e.failures.live_stream import open_on_both, record_of
from tests.e2e.failures.processes import all_ready, kill, no_restarts, until
from tests.e2e.failures.scrape import Samples, scrape, scrape_each, total
from tests.fakes.process import FakeEngineProcess

MESSAGES: list[Any] = [{"role": "user", "content": "Hello."}]
COUNTED = ("slipstream_requests_total", "slipstream_tokens_total", "slipstream_attempts_total")


def counters(samples: Samples) -> Samples:
    """What only grows when requests are served."""
    return {
        key: value
        for key, value in samples.items()
        if key[0] in COUNTED or key[0].startswith("slipstream_phase_seconds_")
    }


async def idle(trial: Deployment) -> None:
    """Return once every request is counted, which is after its last byte has gone."""

    async def none_active() -> bool:
        return total(await scrape(trial), "slipstream_active_requests") == 0

    await until(none_active)


async def test_every_instance_tells_the_same_and_all_of_it(
    trial_client: openai.AsyncOpenAI, trial: Deployment, trial_engines: list[FakeEngineProcess]
) -> None:
    for engine in trial_engines:
        await engine.control(tokens=100_000, inter_token_s=0.01, prompt_tokens=7)
    await idle(trial)
    before = await scrape(trial)
    streams = await open_on_both(trial_client, trial, at_least=4)
    for samples in (await scrape_each(trial)).values():
        assert total(samples, "slipstream_active_requests", tier="chat") == len(streams)
    for stream in streams:
        engine, _ = await record_of(trial_engines, stream.request_id)
        await end_on_engine(engine, stream.request_id)
        await stream.finished()

    await idle(trial)
    told = await scrape_each(trial)
    assert set(told) == {"gateway-1", "gateway-2"}
    one, other = (counters(samples) for samples in told.values())
    assert one == other
    after = told["gateway-1"]
    records = [record for engine in trial_engines for record in await engine.recorded()]

    def grown(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    assert grown("slipstream_requests_total", status="200", code="none", tier="chat") == len(streams)
    assert grown("slipstream_attempts_total", finish="complete", outcome="exact") == len(streams)
    assert grown("slipstream_tokens_total", kind="completion") == sum(record["tokens"] for record in records)
    assert grown("slipstream_tokens_total", kind="prompt") == 7 * len(streams)
    assert grown("slipstream_phase_seconds_count", phase="decode") == len(streams)


async def test_a_killed_instance_leaves_its_counters_and_takes_its_gauges(
    trial_client: openai.AsyncOpenAI, trial: Deployment, trial_engines: list[FakeEngineProcess]
) -> None:
    for engine in trial_engines:
        await engine.control(tokens=3)
    for _ in range(10):
        await trial_client.chat.completions.create(model="fake", messages=MESSAGES)
    for engine in trial_engines:
        await engine.control(tokens=100_000, inter_token_s=0.01)

    await idle(trial)
    before = counters(await scrape(trial))
    streams = await open_on_both(trial_client, trial, at_least=2)
    lost = [stream for stream in streams if stream.gateway == "gateway-1"]
    kept = [stream for stream in streams if stream.gateway == "gateway-2"]
    async with no_restarts(trial):
        await kill(trial, "gateway-1")
        # the survivor still tells what the dead one had counted
        dead = counters(await scrape(trial))
        for name in COUNTED:
            assert total(dead, name) == total(before, name)
    for stream in lost:
        await stream.failure()
    await all_ready(trial)
    for samples in (await scrape_each(trial)).values():
        assert total(samples, "slipstream_active_requests") == len(kept)
        assert total(samples, "slipstream_requests_total") == total(before, "slipstream_requests_total")
        assert total(samples, "slipstream_journal_healthy") == 1
    for stream in kept:
        engine, _ = await record_of(trial_engines, stream.request_id)
        await end_on_engine(engine, stream.request_id)
        await stream.finished()
    await idle(trial)
    after = await scrape(trial)
    assert total(after, "slipstream_requests_total") == total(before, "slipstream_requests_total") + len(kept)
