"""The fake engine does what its scripts say, seen through the real driver and the real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from contracts.errors import EngineFailed, EngineRefused
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, TextPrompt, Tier
from contracts.usage import Usage
from engines.drivers import registry as drivers
from engines.drivers.base import EngineRequest, Load
from engines.drivers.error_bodies import usage_of
from engines.http.engine_connections import EngineConnections
from engines.http.engine_stream import EngineStream
from engines.http.keys import OneKey
from tests.fakes.chunks import answer_text
from tests.fakes.process import FakeEngineProcess, fake_engine

DRIVER = drivers.get("sglang")


@pytest.fixture(scope="module")
async def shared_engine() -> AsyncIterator[FakeEngineProcess]:
    async with fake_engine() as running:
        yield running


@pytest.fixture
async def engine(shared_engine: FakeEngineProcess) -> FakeEngineProcess:
    await shared_engine.control(reset=True)
    return shared_engine


def generation(prompt: ChatPrompt | TextPrompt, n: int = 1, max_tokens: int = 100, rid: str = "req_1") -> Generation:
    return Generation(
        request_id=rid,
        caller=Caller("o", "p", "k"),
        tier=Tier.CHAT,
        model="m",
        prompt=prompt,
        sampling=Sampling(max_tokens=max_tokens, n=n),
    )


CHAT = ChatPrompt(({"role": "user", "content": "hi"},))
TEXT = TextPrompt(("hi",))


async def open_stream(engine: FakeEngineProcess, asked: Generation) -> EngineStream:
    return await engine.connections.open(engine.url, DRIVER.generate(asked, "fake"))


async def events_of(stream: EngineStream) -> list[Any]:
    body = b""
    while piece := await stream.read():
        body += piece
    payloads = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event]
    return [payload if payload == b"[DONE]" else msgspec.json.decode(payload) for payload in payloads]


@pytest.mark.parametrize("split", ["event", "byte", "joined"])
@pytest.mark.parametrize("inter_token_s", [0, 0.001])
@pytest.mark.parametrize("prompt", [CHAT, TEXT])
async def test_a_stream_is_whole_however_it_is_split(
    engine: FakeEngineProcess, prompt: ChatPrompt | TextPrompt, inter_token_s: float, split: str
) -> None:
    await engine.control(tokens=5, split=split, inter_token_s=inter_token_s, prompt_tokens=7, cached_tokens=3)
    events = await events_of(await open_stream(engine, generation(prompt)))
    assert events[-1] == b"[DONE]"
    assert usage_of(events[-2]["usage"]) == Usage(7, 5, 3)
    assert events[-2]["choices"] == []
    assert {event["id"] for event in events[:-1]} == {"req_1"}
    choices = [event["choices"][0] for event in events[:-2]]
    text = "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)
    assert text == answer_text(5)
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
    (record,) = await engine.wait(finished=1)
    assert (record["tokens"], record["aborted"], record["disconnected"]) == (5, False, False)
    assert record["body"]["rid"] == "req_1"
    assert record["headers"]["authorization"] == "Bearer secret"


async def test_max_tokens_cuts_and_is_the_reason(engine: FakeEngineProcess) -> None:
    events = await events_of(await open_stream(engine, generation(TEXT, max_tokens=3)))
    assert events[-3]["choices"][0]["finish_reason"] == "length"
    assert usage_of(events[-2]["usage"]).completion_tokens == 3


async def test_choices_come_interleaved_and_are_counted_together(engine: FakeEngineProcess) -> None:
    await engine.control(tokens=2)
    events = await events_of(await open_stream(engine, generation(TextPrompt(("a", "b")), n=2)))
    assert [event["choices"][0]["index"] for event in events[:-2]] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert usage_of(events[-2]["usage"]).completion_tokens == 8


async def test_abort_ends_the_stream_with_an_exact_count(engine: FakeEngineProcess) -> None:
    await engine.control(tokens=50, inter_token_s=0.001, hang_after_tokens=4)
    stream = await open_stream(engine, generation(CHAT))
    await engine.wait(tokens=4)
    abort = DRIVER.abort("req_1")
    assert abort is not None
    assert (await engine.connections.fetch(engine.url, abort, 10))[0] == 200
    events = await events_of(stream)
    assert events[-3]["choices"][0]["finish_reason"] == "abort"
    assert usage_of(events[-2]["usage"]).completion_tokens == 4
    (record,) = await engine.recorded("req_1")
    assert record["aborted"]


async def test_choices_with_ids_of_their_own_are_not_aborted_by_ours(engine: FakeEngineProcess) -> None:
    await engine.control(tokens=2, inter_token_s=0.001, own_ids=True, hang_after_tokens=1)
    stream = await open_stream(engine, generation(CHAT, n=2))
    await engine.wait(tokens=2)
    await engine.connections.fetch(engine.url, EngineRequest("POST", "/abort_request", b'{"rid":"req_1"}'), 10)
    assert not (await engine.recorded())[0]["aborted"]
    stream.close()
    (record,) = await engine.wait(disconnected=1)
    assert record["tokens"] == 2


async def test_a_prompt_can_carry_its_own_script(engine: FakeEngineProcess) -> None:
    events = await events_of(await open_stream(engine, generation(TextPrompt(('x mock:{"tokens": 2} y',)))))
    assert usage_of(events[-2]["usage"]).completion_tokens == 2


async def test_an_engine_that_dies_leaves_a_cut_stream(engine: FakeEngineProcess) -> None:
    await engine.control(tokens=9, die_after_tokens=3)
    stream = await open_stream(engine, generation(TEXT))
    with pytest.raises(EngineFailed):
        await events_of(stream)
    await engine.control(die_after_tokens=0)
    with pytest.raises(EngineFailed):
        await open_stream(engine, generation(TEXT, rid="req_2"))


async def test_failures_before_and_after_the_first_event(engine: FakeEngineProcess) -> None:
    await engine.control(status=400, message="top_p must be in (0, 1], got 2.0.")
    stream = await open_stream(engine, generation(TEXT))
    error = DRIVER.error(stream.status, await stream.read())
    assert isinstance(error, EngineRefused)
    await engine.control(status=200, error_after_tokens=1)
    events = await events_of(await open_stream(engine, generation(TEXT, rid="req_2")))
    assert events[1]["error"]["code"] == 500


async def test_without_usage_and_without_a_role(engine: FakeEngineProcess) -> None:
    await engine.control(tokens=1, usage=False, role_first=False)
    events = await events_of(await open_stream(engine, generation(CHAT)))
    assert [event["choices"][0]["delta"].get("content") for event in events[:-1]] == [" t0", None]
    assert not any("usage" in event for event in events[:-1])


async def test_silence_ends_when_the_caller_leaves(engine: FakeEngineProcess) -> None:
    await engine.control(hang=True)
    opening = asyncio.ensure_future(open_stream(engine, generation(TEXT)))
    await engine.wait(requests=1)
    opening.cancel()
    (record,) = await engine.wait(disconnected=1)
    assert record["tokens"] == 0


async def test_the_side_doors(engine: FakeEngineProcess) -> None:
    embedded = drivers.get("embedded")
    await engine.control(tokens=2, prompt_tokens=7)
    ask = embedded.usage_by_id("req_1")
    assert ask is not None
    assert embedded.parse_usage_by_id(*await engine.connections.fetch(engine.url, ask, 10)) is None
    await events_of(await open_stream(engine, generation(TEXT)))
    assert embedded.parse_usage_by_id(*await engine.connections.fetch(engine.url, ask, 10)) == Usage(7, 2)
    load = embedded.load()
    assert load is not None
    status, body = await engine.connections.fetch(engine.url, load, 10)
    assert (status, embedded.parse_load(body)) == (200, Load(capacity_tokens=100_000))
    for healthy, expected in ((False, 503), (True, 200)):
        await engine.control(healthy=healthy)
        assert (await engine.connections.fetch(engine.url, embedded.health(), 10))[0] == expected


async def test_the_token_is_demanded(engine: FakeEngineProcess) -> None:
    stranger = EngineConnections(OneKey("wrong"))
    try:
        for request in (DRIVER.generate(generation(TEXT), "m"), EngineRequest("GET", "/v1/loads")):
            assert (await stranger.fetch(engine.url, request, 10))[0] == 401
        assert (await stranger.fetch(engine.url, DRIVER.health(), 10))[0] == 200
    finally:
        await stranger.close()
