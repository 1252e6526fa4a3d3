"""The router killed under live streams: they never notice, new requests are told to come back, and all of it heals."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from tests.deployment import Deployment
from tests.e2e.failures.engine_place import end_on_engine
from tests.e2e.failures.live_stream import open_on_both, record_of
from tests.e2e.failures.processes import kill, no_restarts
from tests.e2e.failures.router_view import RouterView
from tests.fakes.process import FakeEngineProcess
from tests.waiting import eventually

MESSAGES: list[Any] = [{"role": "user", "content": "Hello."}]


async def test_streams_outlive_the_router(
    trial_client: openai.AsyncOpenAI, trial: Deployment, trial_engines: list[FakeEngineProcess]
) -> None:
    router = RouterView.of(trial)
    before = await router.describe()
    assert before is not None
    for engine in trial_engines:
        await engine.control(tokens=100_000, inter_token_s=0.02)
    streams = await open_on_both(trial_client, trial, at_least=5)
    for engine in trial_engines:
        await engine.control(tokens=3, inter_token_s=0)

    async with no_restarts(trial):
        await kill(trial, "router")

        async def turn_away() -> None:
            with pytest.raises(openai.InternalServerError) as refused:
                await trial_client.chat.completions.create(model="fake", messages=MESSAGES)
            assert (refused.value.status_code, refused.value.code) == (503, "router_unavailable")
            assert int(refused.value.response.headers["retry-after"]) >= 1
            request_id = refused.value.response.headers["x-request-id"]
            [row] = await trial.ledger(request_id)
            assert (row["finish"], row["billed"], row["outcome"]) == ("not_placed", False, "exact")

        await asyncio.gather(*(turn_away() for _ in range(6)))
        counts = [stream.tokens for stream in streams]

        async def all_flow_on() -> bool:
            return all(stream.tokens > count + 5 for stream, count in zip(streams, counts, strict=True))

        await eventually(all_flow_on)

    async def recovered() -> bool:
        described = await router.describe()
        return described is not None and described.gateways == 2

    await eventually(recovered)
    after = await router.describe()
    assert after is not None
    assert after.router_epoch != before.router_epoch
    assert after.desired_state_version == before.desired_state_version

    # nobody waits for a grace period: the new router knows every lease from the gateways' hellos
    running = {f"fake-{number}": 0 for number in range(len(trial_engines))}
    for stream in streams:
        engine, _ = await record_of(trial_engines, stream.request_id)
        running[f"fake-{trial_engines.index(engine)}"] += 1
    assert await router.leases() == running

    for _ in range(6):
        answer = await trial_client.chat.completions.create(model="fake", messages=MESSAGES)
        assert answer.choices[0].finish_reason == "stop"

    for stream in streams:
        engine, _ = await record_of(trial_engines, stream.request_id)
        await end_on_engine(engine, stream.request_id)
        await stream.finished()
        _, record = await record_of(trial_engines, stream.request_id)
        [row] = await trial.ledger(stream.request_id)
        assert stream.tokens == record["tokens"] == row["completion_tokens"]
        assert stream.finish is not None
        assert (row["finish"], row["outcome"], row["billed"]) == ("complete", "exact", True)

    async def idle() -> bool:
        return await router.leases() == dict.fromkeys(running, 0)

    await eventually(idle)


async def test_requests_during_a_restart_wait_for_it_or_are_told_to(
    trial_client: openai.AsyncOpenAI, trial: Deployment, trial_engines: list[FakeEngineProcess]
) -> None:
    for engine in trial_engines:
        await engine.control(tokens=3)
    await kill(trial, "router")
    refusals = answers = 0

    async def ask() -> None:
        nonlocal refusals, answers
        try:
            await trial_client.chat.completions.create(model="fake", messages=MESSAGES)
        except openai.InternalServerError as error:
            assert error.code == "router_unavailable"
            refusals += 1
        else:
            answers += 1

    while answers < 20:
        await asyncio.gather(*(ask() for _ in range(5)))
    records = [record for engine in trial_engines for record in await engine.recorded()]
    # an ask that was sent to two routers is still one request
    assert len(records) == answers
    rows = await trial.ledger(*(record["rid"] for record in records))
    assert all(row["billed"] and row["attempt"] == 0 for row in rows)
