"""A gateway killed with live streams: no attempt it had opened is left without exactly one row."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import psutil
import pytest

from tests.deployment import Deployment
from tests.e2e.failures.engine_place import EnginePlace, end_on_engine
from tests.e2e.failures.live_stream import open_on_both, open_stream, record_of
from tests.e2e.failures.processes import all_ready, gateway_of, kill, no_restarts, process_ids
from tests.e2e.failures.router_view import RouterView
from tests.e2e.failures.scrape import increase, scrape_each, targets
from tests.fakes.process import FakeEngineProcess
from tests.waiting import eventually

MESSAGES: list[Any] = [{"role": "user", "content": "Hello."}]


@pytest.fixture
async def stack() -> AsyncIterator[contextlib.AsyncExitStack]:
    """Closes what a test has opened."""
    async with contextlib.AsyncExitStack() as made:
        yield made


async def test_its_streams_are_recorded_with_the_engines_count(
    trial_client: openai.AsyncOpenAI, trial: Deployment, trial_engines: list[FakeEngineProcess]
) -> None:
    before = await scrape_each(trial)
    for engine in trial_engines:
        await engine.control(tokens=100_000, inter_token_s=0.01)
    streams = await open_on_both(trial_client, trial, at_least=6)
    old_pid = await kill(trial, "gateway-1")
    broken = [stream for stream in streams if stream.gateway == "gateway-1"]
    whole = [stream for stream in streams if stream.gateway == "gateway-2"]
    for stream in broken:
        assert isinstance(await stream.failure(), openai.APIConnectionError)

    rows = await trial.ledger(*(stream.request_id for stream in broken))
    assert len(rows) == len(broken)
    for row in rows:
        _, record = await record_of(trial_engines, row["request_id"])
        # nothing is generated for nobody, and what was is known to the token
        assert record["aborted"] or record["disconnected"]
        assert (row["finish"], row["outcome"], row["billed"]) == ("gateway_crash", "exact", False)
        assert (row["completion_tokens"], row["prompt_tokens"]) == (record["tokens"], record["prompt_tokens"])
    by_id = {stream.request_id: stream for stream in broken}
    assert all(row["completion_tokens"] >= by_id[row["request_id"]].tokens for row in rows)
    after = await scrape_each(trial)
    assert increase(before, after, "slipstream_recovered_attempts_total", outcome="exact") == len(broken)

    # the other gateway's clients have seen nothing
    for stream in whole:
        engine, _ = await record_of(trial_engines, stream.request_id)
        await end_on_engine(engine, stream.request_id)
        await stream.finished()
    rows = await trial.ledger(*(stream.request_id for stream in whole))
    assert {row["finish"] for row in rows} == {"complete"}
    assert sum(row["completion_tokens"] for row in rows) == sum(stream.tokens for stream in whole)

    await all_ready(trial)
    assert process_ids(trial)["gateway-1"] != old_pid
    router = RouterView.of(trial)

    async def no_lease_is_left() -> bool:
        return set((await router.leases()).values()) == {0}

    await eventually(no_lease_is_left)


async def test_what_nobody_can_say_any_more_is_recorded_as_unknown_and_counted(
    trial_client: openai.AsyncOpenAI,
    trial: Deployment,
    trial_engines: list[FakeEngineProcess],
    places: list[EnginePlace],
) -> None:
    before = await scrape_each(trial)
    for engine in trial_engines:
        await engine.control(tokens=100_000, inter_token_s=0.01)
    streams = await open_on_both(trial_client, trial, at_least=2)
    async with no_restarts(trial):
        for name in ("gateway-1", "gateway-2"):
            await kill(trial, name)
        for place in places:
            await place.kill()
    for stream in streams:
        assert isinstance(await stream.failure(), openai.APIConnectionError)
    rows = await trial.ledger(*(stream.request_id for stream in streams))
    assert len(rows) == len(streams)
    for row in rows:
        assert (row["finish"], row["outcome"], row["billed"]) == ("gateway_crash", "unknown", False)
        assert (row["prompt_tokens"], row["completion_tokens"]) == (0, 0)
    for place in places:
        await place.start_again()
    await all_ready(trial)
    after = await scrape_each(trial)
    assert increase(before, after, "slipstream_recovered_attempts_total", outcome="unknown") == len(streams)

    async def serves_again() -> bool:
        try:
            await trial_client.chat.completions.create(model="fake", messages=MESSAGES, max_tokens=2)
        except openai.InternalServerError as error:
            assert error.code == "no_engine_available"
            return False
        return True

    await eventually(serves_again)


async def test_with_the_embedded_engine(client: openai.AsyncOpenAI, embedded: Deployment) -> None:
    url = (await embedded.processes())["engine-autocomplete-1"]["url"]
    raw = await client.completions.with_raw_response.create(
        model="slipstream-code", prompt="import ", max_tokens=1_900, n=4, temperature=0, stream=True
    )
    request_id, seen, broken = raw.headers["x-request-id"], 0, False
    try:
        async for chunk in raw.parse():
            seen += bool(chunk.choices and chunk.choices[0].text)
            if seen == 5:
                await kill(embedded, "gateway-1")
    except openai.APIConnectionError:
        broken = True
    assert broken
    [row] = await embedded.ledger(request_id)
    assert (row["finish"], row["outcome"], row["billed"]) == ("gateway_crash", "exact", False)
    async with httpx2.AsyncClient(
        headers={"Authorization": f"Bearer {(embedded.data / 'token').read_text()}"}
    ) as engine:
        usage = (await engine.get(f"{url}/usage", params={"rid": request_id})).json()["usage"]
    assert seen <= row["completion_tokens"] == usage["completion_tokens"] < 4 * 1_900
    assert row["prompt_tokens"] == usage["prompt_tokens"]
    await all_ready(embedded)
    answer = await client.completions.create(model="slipstream-code", prompt="import ", max_tokens=2)
    assert answer.choices[0].finish_reason


async def stay_connected(stack: contextlib.AsyncExitStack, trial: Deployment, gateway: str) -> openai.AsyncOpenAI:
    """A client whose connection, kept alive, is to this gateway."""
    while True:
        client = await stack.enter_async_context(
            openai.AsyncOpenAI(base_url=f"{trial.url}/v1", api_key=trial.key, max_retries=0)
        )
        async with client.models.with_streaming_response.list() as response:
            found = gateway_of(trial, response.http_response)
            await response.read()
        if found == gateway:
            return client


async def test_the_places_it_held_are_free_again(
    trial_client: openai.AsyncOpenAI, trial: Deployment, trial_engines: list[FakeEngineProcess]
) -> None:
    for engine in trial_engines:
        await engine.control(tokens=100_000, inter_token_s=0.01)
    key = await trial.make_key("--max-concurrency", "2", "--tokens-per-minute", "1000000")
    client = trial_client.with_options(api_key=key)
    streams = [await open_stream(client, trial), await open_stream(client, trial)]
    for engine in trial_engines:
        await engine.control(tokens=3, inter_token_s=0)
    for name in {stream.gateway for stream in streams}:
        await kill(trial, name)
    for stream in streams:
        await stream.failure()
    await all_ready(trial)

    async def both_are_free() -> bool:
        answers = await asyncio.gather(
            *(client.chat.completions.create(model="fake", messages=MESSAGES) for _ in range(2)), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, openai.RateLimitError):
                raise answer
        return not any(isinstance(answer, openai.RateLimitError) for answer in answers)

    await eventually(both_are_free)


async def test_a_gateway_told_to_stop_finishes_its_streams_and_refuses_nobody(
    trial_client: openai.AsyncOpenAI,
    trial: Deployment,
    trial_engines: list[FakeEngineProcess],
    stack: contextlib.AsyncExitStack,
) -> None:
    for engine in trial_engines:
        await engine.control(tokens=100_000, inter_token_s=0.01)
    streams = await open_on_both(trial_client, trial, at_least=2)
    kept_alive = await stay_connected(stack, trial, "gateway-1")
    draining = next(stream for stream in streams if stream.gateway == "gateway-1")
    old_pid = process_ids(trial)["gateway-1"]
    metrics_port = httpx2.URL(targets(trial)["gateway-1"]).port
    os.kill(old_pid, signal.SIGTERM)
    for engine in trial_engines:
        await engine.control(tokens=3, inter_token_s=0)

    async def no_longer_listens() -> bool:
        connections = psutil.Process(old_pid).net_connections("tcp")
        listening = [connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN]
        assert set(listening) <= {trial.port, metrics_port}  # metrics are shown to the end
        return trial.port not in listening

    listens = True
    while listens:
        listens = not await no_longer_listens()
        await trial_client.chat.completions.create(model="fake", messages=MESSAGES)  # whichever takes it, answers
    # a client whose idle connection was closed notices and takes another
    await kept_alive.chat.completions.create(model="fake", messages=MESSAGES)
    for _ in range(10):  # from now on every connection goes to the other one
        other = await open_stream(trial_client, trial)
        assert other.gateway == "gateway-2"
        await other.finished()

    count = draining.tokens

    async def flows_on() -> bool:
        return draining.tokens > count + 5

    await eventually(flows_on)
    assert psutil.pid_exists(old_pid)
    for stream in streams:
        engine, _ = await record_of(trial_engines, stream.request_id)
        await end_on_engine(engine, stream.request_id)
        await stream.finished()
        [row] = await trial.ledger(stream.request_id)
        assert (row["finish"], row["outcome"]) == ("complete", "exact")
        assert row["completion_tokens"] == stream.tokens
    await all_ready(trial)
    assert process_ids(trial)["gateway-1"] != old_pid
