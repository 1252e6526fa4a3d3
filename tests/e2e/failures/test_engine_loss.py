"""Engines that refuse, fail or die: what the client is told, what is retried, what is billed."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from tests.deployment import Deployment
from tests.e2e.failures.engine_place import EnginePlace, end_on_engine
from tests.e2e.failures.live_stream import LiveStream, open_stream, record_of
from tests.e2e.failures.processes import kill
from tests.e2e.failures.scrape import scrape, total
from tests.fakes.chunks import answer_text
from tests.fakes.process import FakeEngineProcess
from tests.waiting import eventually

MESSAGES: list[Any] = [{"role": "user", "content": "Tell me a story."}]


async def ledger_rows(faked: Deployment, count: int, *request_ids: str) -> list[dict[str, Any]]:
    """The ledger's rows of these requests, once there are so many: those of one request may be shipped apart."""

    async def all_there() -> bool:
        return len(await faked.ledger(*request_ids)) >= count

    await eventually(all_there)
    return await faked.ledger(*request_ids)


async def test_a_stream_whose_engine_dies_ends_in_one_error_event(
    spread_client: openai.AsyncOpenAI, faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    for engine in fresh_engines:
        await engine.control(tokens=9, die_after_tokens=3, inter_token_s=0.001)
    stream = await open_stream(spread_client, faked)
    error = await stream.failure()
    assert type(error) is openai.APIError  # not a broken connection: an error event, read as such
    assert (error.code, error.type) == ("engine_failed", "server_error")
    assert stream.text == answer_text(3)
    assert stream.finish is None
    [row] = await faked.ledger(stream.request_id)
    assert (row["outcome"], row["finish"], row["error_code"]) == ("lower_bound", "engine_error", "engine_failed")
    assert (row["completion_tokens"], row["billed"], row["status"], row["attempt"]) == (3, True, 200, 0)


async def test_a_client_that_leaves_while_it_asks_is_no_error_of_ours(
    trial: Deployment, trial_client: openai.AsyncOpenAI
) -> None:
    before = await scrape(trial)
    for _ in range(4):
        _, writer = await asyncio.open_connection("127.0.0.1", trial.port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {trial.key}\r\n"
        writer.write(head.encode() + b'Content-Length: 99\r\n\r\n{"model":')
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def all_noticed() -> bool:
        samples = await scrape(trial)
        name, labels = "slipstream_requests_total", {"status": "499", "code": "client_gone"}
        return total(samples, name, **labels) - total(before, name, **labels) == 4

    await eventually(all_noticed)
    for name in ("gateway-1", "gateway-2"):
        assert "Traceback" not in trial.log(name)


@pytest.mark.parametrize(("failing", "streamed"), [({"die_after_tokens": 0}, True), ({"status": 503}, False)])
async def test_a_failure_before_the_first_event_is_retried_on_the_other_engine(
    spread_client: openai.AsyncOpenAI,
    faked: Deployment,
    fresh_engines: list[FakeEngineProcess],
    failing: dict[str, int],
    streamed: bool,
) -> None:
    bad, good = fresh_engines
    await bad.control(**failing)
    await good.control(tokens=4)
    request_ids = []
    while not await bad.recorded():  # the router places where there is least load, and neither has any
        raw: Any = await spread_client.chat.completions.with_raw_response.create(
            model="fake", messages=MESSAGES, stream=streamed
        )
        request_ids.append(raw.headers["x-request-id"])
        if streamed:
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in raw.parse() if chunk.choices])
        else:
            text = raw.parse().choices[0].message.content or ""
        assert text == answer_text(4)
    # the last request took two attempts, the ones before it met the good engine at once
    rows = await ledger_rows(faked, len(request_ids) + 1, *request_ids)
    assert {row["request_id"] for row in rows if row["billed"]} == set(request_ids)
    assert sum(row["billed"] for row in rows) == len(request_ids)
    first, second = sorted(
        (row for row in rows if row["request_id"] == request_ids[-1]), key=lambda row: row["attempt"]
    )
    assert (first["attempt"], first["billed"], first["completion_tokens"]) == (0, False, 0)
    assert (second["attempt"], second["billed"], second["completion_tokens"]) == (1, True, 4)
    assert first["replica_id"] != second["replica_id"]
    assert (second["finish"], second["outcome"], second["status"]) == ("complete", "exact", 200)
    await all_serve(spread_client, fresh_engines)


async def all_serve(client: openai.AsyncOpenAI, engines: list[FakeEngineProcess]) -> None:
    """Mend the engines and ask until each has answered: a tenant keeps away from those that failed it, for a while."""
    for engine in engines:
        await engine.control(reset=True)
    while not all([await engine.recorded() for engine in engines]):
        await client.chat.completions.create(model="fake", messages=MESSAGES, max_tokens=1)


async def test_what_the_engine_refuses_keeps_its_meaning_and_is_not_retried(
    spread_client: openai.AsyncOpenAI, faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    for engine in fresh_engines:
        await engine.control(status=400, message="top_k must be at least 1, got 0.")
    with pytest.raises(openai.BadRequestError) as refused:
        await spread_client.chat.completions.create(model="fake", messages=MESSAGES, stream=True)
    assert refused.value.code == "engine_refused"
    assert "top_k must be at least 1, got 0." in refused.value.message
    [row] = await faked.ledger(refused.value.response.headers["x-request-id"])
    assert (row["attempt"], row["billed"], row["status"]) == (0, False, 400)
    assert (row["completion_tokens"], row["outcome"]) == (0, "exact")
    assert sum([len(await engine.recorded()) for engine in fresh_engines]) == 1


async def test_engines_at_their_limit_are_tried_and_then_said_to_be(
    spread_client: openai.AsyncOpenAI, faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    for engine in fresh_engines:
        await engine.control(status=503)
    with pytest.raises(openai.InternalServerError) as refused:
        await spread_client.chat.completions.create(model="fake", messages=MESSAGES, stream=True)
    assert (refused.value.status_code, refused.value.code) == (503, "overloaded")
    assert int(refused.value.response.headers["retry-after"]) >= 1
    rows = await ledger_rows(faked, 2, refused.value.response.headers["x-request-id"])
    assert sorted((row["attempt"], row["billed"]) for row in rows) == [(0, False), (1, False)]
    assert [len(await engine.recorded()) for engine in fresh_engines] == [1, 1]


async def test_a_killed_engine_takes_only_its_own_streams(
    trial_client: openai.AsyncOpenAI,
    trial: Deployment,
    trial_engines: list[FakeEngineProcess],
    places: list[EnginePlace],
) -> None:
    for engine in trial_engines:
        await engine.control(tokens=100_000, inter_token_s=0.01)
    streams: list[LiveStream] = []
    while not all([await engine.recorded() for engine in trial_engines]) or len(streams) < 4:
        streams.append(await open_stream(trial_client, trial))
    doomed = {record["rid"] for record in await trial_engines[0].recorded()}
    await places[0].kill()

    for stream in streams:
        if stream.request_id in doomed:
            assert getattr(await stream.failure(), "code", None) == "engine_failed"
            [row] = await trial.ledger(stream.request_id)
            # every event had the count so far: the client has what is billed
            assert (row["outcome"], row["completion_tokens"]) == ("lower_bound", stream.tokens)
    # nobody is turned away: at worst their first attempt meets the dead engine
    await trial_engines[1].control(tokens=3, inter_token_s=0)
    for _ in range(6):
        answer = await trial_client.chat.completions.create(model="fake", messages=MESSAGES)
        assert answer.choices[0].message.content == answer_text(3)

    await places[0].start_again()

    async def serves_again() -> bool:
        await trial_client.chat.completions.create(model="fake", messages=MESSAGES, max_tokens=3)
        return bool(await places[0].engine.recorded())

    await eventually(serves_again)
    for stream in streams:
        if stream.request_id not in doomed:
            await end_on_engine(trial_engines[1], stream.request_id)
            await stream.finished()
            [row] = await trial.ledger(stream.request_id)
            _, record = await record_of([trial_engines[1]], stream.request_id)
            assert (row["outcome"], row["completion_tokens"]) == ("exact", record["tokens"])
            assert stream.tokens == record["tokens"]


async def test_a_killed_embedded_engine_ends_its_streams_and_comes_back(
    client: openai.AsyncOpenAI, embedded: Deployment
) -> None:
    raw = await client.completions.with_raw_response.create(
        model="slipstream-code", prompt="import ", max_tokens=1_500, n=4, temperature=0, stream=True
    )
    seen = 0
    with pytest.raises(openai.APIError) as failed:  # noqa: PT012
        async for chunk in raw.parse():
            seen += bool(chunk.choices and chunk.choices[0].text)
            if seen == 5:
                await kill(embedded, "engine-autocomplete-1")
    assert failed.value.code == "engine_failed"
    [row] = await embedded.ledger(raw.headers["x-request-id"])
    assert (row["outcome"], row["finish"], row["billed"]) == ("lower_bound", "engine_error", True)
    assert row["completion_tokens"] >= seen

    async def serves_again() -> bool:
        try:
            await client.completions.create(model="slipstream-code", prompt="import ", max_tokens=2)
        except openai.InternalServerError as error:
            # while it is away: a clean refusal that says when to come back
            assert error.code in ("engine_failed", "no_engine_available", "overloaded")
            assert int(error.response.headers["retry-after"]) >= 1
            return False
        return True

    await eventually(serves_again)
