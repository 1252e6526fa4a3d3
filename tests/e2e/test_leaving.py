"""Clients that leave: the engine stops within a step, and the ledger holds exactly what was generated."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import openai
import pytest

from tests.deployment import Deployment
from tests.fakes.process import FakeEngineProcess

STORY: list[Any] = [{"role": "user", "content": "Tell me everything you know."}]


async def record_of(engines: list[FakeEngineProcess], request_id: str) -> tuple[FakeEngineProcess, dict[str, Any]]:
    """The engine that had the request, and what it recorded."""
    for engine in engines:
        for record in await engine.recorded(request_id):
            return engine, record
    raise AssertionError(f"no engine has seen {request_id}")


@pytest.mark.parametrize("leave_after", [0, 7, 39])
async def test_leaving_a_stream_bills_what_the_engine_made(
    fake_client: openai.AsyncOpenAI, faked: Deployment, fresh_engines: list[FakeEngineProcess], leave_after: int
) -> None:
    for engine in fresh_engines:
        await engine.control(tokens=40, inter_token_s=0.005)
    raw = await fake_client.chat.completions.with_raw_response.create(
        model="fake", messages=STORY, max_tokens=40, stream=True
    )
    request_id = raw.headers["x-request-id"]
    stream = raw.parse()
    seen = 0
    async for chunk in stream:
        if seen == leave_after:
            break
        seen += bool(chunk.choices and chunk.choices[0].delta.content)
    await stream.close()
    [row] = await faked.ledger(request_id)
    _, record = await record_of(fresh_engines, request_id)
    assert row["completion_tokens"] == record["tokens"] >= seen
    assert row["prompt_tokens"] == record["prompt_tokens"]
    assert row["outcome"] == "exact"
    assert row["finish"] in ("client_gone", "complete")
    if leave_after < 30:
        assert record["aborted"]
        assert record["tokens"] < 40


async def test_leaving_a_whole_answer_bills_what_the_engine_made(
    fake_client: openai.AsyncOpenAI, faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    for engine in fresh_engines:
        await engine.control(tokens=500, inter_token_s=0.005)
    asking = asyncio.create_task(fake_client.chat.completions.create(model="fake", messages=STORY, max_tokens=500))
    waits = [asyncio.create_task(engine.wait(tokens=5)) for engine in fresh_engines]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    for wait in waits:
        wait.cancel()
    [record] = [record for engine in fresh_engines for record in await engine.recorded()]
    [row] = await faked.ledger(record["rid"])
    _, record = await record_of(fresh_engines, record["rid"])
    assert record["aborted"]
    assert 5 <= row["completion_tokens"] == record["tokens"] < 500
    assert (row["finish"], row["outcome"], row["billed"]) == ("client_gone", "exact", True)


async def test_a_client_that_stops_reading_is_cut(faked: Deployment, fresh_engines: list[FakeEngineProcess]) -> None:
    for engine in fresh_engines:
        await engine.control(tokens=200_000, inter_token_s=0.0)
    body = b'{"model":"fake","messages":[{"role":"user","content":"go on"}],"max_tokens":100000,"stream":true}'
    reader, writer = await asyncio.open_connection("127.0.0.1", faked.port, limit=1)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b"
        % (faked.key.encode(), len(body), body)
    )
    await writer.drain()
    waits = [asyncio.create_task(engine.wait(ended=1)) for engine in fresh_engines]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    [record] = [record for engine in fresh_engines for record in await engine.recorded()]
    [row] = await faked.ledger(record["rid"])
    assert (row["finish"], row["error_code"]) == ("client_gone", None)
    assert row["completion_tokens"] == record["tokens"]
    for wait in waits:
        wait.cancel()
    writer.close()
    del reader


async def test_real_engine_cancelled_at_random_events(client: openai.AsyncOpenAI, embedded: Deployment) -> None:
    choose = random.Random(11)

    async def leave(number: int) -> tuple[str, int]:
        raw = await client.completions.with_raw_response.create(
            model="slipstream-code", prompt=f"# file {number}\nimport ", max_tokens=300, temperature=1, stream=True,
            n=1 + number % 2,
        )  # fmt: skip
        stream, events, stop = raw.parse(), 0, choose.randrange(1, 60)
        async for _ in stream:
            events += 1
            if events == stop:
                break
        await stream.close()
        return raw.headers["x-request-id"], events

    left = dict(await asyncio.gather(*(leave(number) for number in range(24))))
    rows = await embedded.ledger(*left)
    assert len(rows) == len(left)
    token = (embedded.data / "token").read_text()
    url = (await embedded.processes())["engine-autocomplete-1"]["url"]
    for row in rows:
        async with openai.AsyncOpenAI(base_url=url, api_key=token, max_retries=0) as engine:
            final = await engine.get(f"/usage?rid={row['request_id']}", cast_to=dict[str, Any])
        usage = final.get("usage", final)
        assert row["outcome"] == "exact"
        assert (row["prompt_tokens"], row["completion_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
        # an event is at least a token; what was generated beyond what was read is at most what was in flight
        assert row["completion_tokens"] >= left[row["request_id"]] - 2
