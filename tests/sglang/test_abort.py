"""How requests are stopped in the real SGLang: by id within a step, the right attempt alone, or by closing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from contracts.generation import ChatPrompt, Generation, TextPrompt
from engines.drivers.base import EngineRequest
from engines.drivers.error_bodies import usage_of
from engines.http.engine_stream import EngineStream
from gateway.metering.journal.records import earlier_engine_request_id, engine_request_id
from tests.real_engine import GUARD_S, ask, finishes, payloads, read_all
from tests.sglang.client import CHAT, DRIVER, ENDLESS, Client

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(400)]
LONGEST = 4_000
"""Tokens; the model takes 4,608. Nothing here comes to that: it is stopped before."""
ABORTED = "sglang:num_aborted_requests_total"
STEP_S = 2.0
"""How long a step is made to take: all that happens between two processes takes less, on busy cores too."""
STEPS = 3
"""Tokens that may still come: of the step that runs, the one that was prepared beside it, and one whose event was on
its way to us."""


def named(request_id: str, max_tokens: int) -> Generation:
    """A request that goes on until it has its tokens, under an id of ours."""
    return msgspec.structs.replace(ask(CHAT, max_tokens=max_tokens, logit_bias=ENDLESS), request_id=request_id)


@contextlib.asynccontextmanager
async def slowed(engine: Client) -> AsyncIterator[None]:
    """The engine takes `STEP_S` for every step."""

    async def take(seconds: float) -> None:
        body = msgspec.json.encode({"forward_sleep_time": seconds})
        assert (await engine.fetch(EngineRequest("POST", "/slow_down", body)))[0] == 200

    await take(STEP_S)
    try:
        yield
    finally:
        await take(0.0)


async def count_after(stream: EngineStream, events: int) -> int:
    """Generated tokens as told by the last of so many events more."""
    body = b""
    while body.count(b'"usage":{') < events or not body.endswith(b"\n\n"):
        piece = await stream.read()
        assert piece, body
        body += piece
    told = [event["usage"]["completion_tokens"] for event in payloads(body) if event.get("usage")]
    return int(told[-1])


async def opened(engine: Client, generation: Generation) -> EngineStream:
    """Its stream, which has told its first token."""
    stream = await engine.open(generation)
    await count_after(stream, 1)
    return stream


@pytest.mark.parametrize("prompt", [CHAT, TextPrompt(("hi",))])
async def test_abort_by_id_ends_the_stream_with_an_exact_count(engine: Client, prompt: ChatPrompt | TextPrompt) -> None:
    generation = ask(prompt, max_tokens=LONGEST, logit_bias=ENDLESS)
    stream = await engine.open(generation)
    body = await stream.read()
    status, _ = await engine.fetch(DRIVER.abort(generation.request_id))
    assert status == 200
    events = payloads(body + await read_all(stream))
    assert finishes(events) == ["abort"]
    final = usage_of(events[-2]["usage"]).completion_tokens
    running = [event["usage"]["completion_tokens"] for event in events[:-2] if event.get("usage")]
    assert running[-1] <= final < LONGEST
    assert events[-1] == b"[DONE]"
    await engine.idle()


async def test_abort_takes_effect_within_a_step(engine: Client) -> None:
    generation = ask(CHAT, max_tokens=LONGEST, logit_bias=ENDLESS)
    stream = await engine.open(generation)
    async with slowed(engine):
        await count_after(stream, 1)  # all that was told before it became slow
        seen = await count_after(stream, 1)
        assert (await engine.fetch(DRIVER.abort(generation.request_id)))[0] == 200
        events = payloads(await asyncio.wait_for(read_all(stream), GUARD_S))
    assert finishes(events) == ["abort"]
    assert seen <= usage_of(events[-2]["usage"]).completion_tokens <= seen + STEPS
    await engine.idle()


@pytest.mark.parametrize("stopped", [0, 1, 10])
async def test_stopping_one_attempt_leaves_the_others_alone(engine: Client, stopped: int) -> None:
    attempts = (0, 1, 2, 10, 11)
    request_id = ask(CHAT).request_id
    ids = {attempt: engine_request_id(request_id, attempt) for attempt in attempts}
    streams = {
        attempt: await opened(engine, named(ids[attempt], LONGEST if attempt == stopped else 300))
        for attempt in (stopped, *(one for one in attempts if one != stopped))
    }
    assert (await engine.fetch(DRIVER.abort(ids[stopped])))[0] == 200
    ends = {attempt: finishes(payloads(await rest(stream))) for attempt, stream in streams.items()}
    assert ends == {attempt: ["abort" if attempt == stopped else "length"] for attempt in attempts}


async def rest(stream: EngineStream) -> bytes:
    """All that still comes of it."""
    return await asyncio.wait_for(read_all(stream), GUARD_S)


async def test_stopping_one_would_stop_all_whose_ids_it_begins(engine: Client) -> None:
    """Why attempts have the ids they have."""
    request_id = ask(CHAT).request_id
    first = await opened(engine, named(request_id, LONGEST))
    second = await opened(engine, named(earlier_engine_request_id(request_id, 1), LONGEST))
    assert (await engine.fetch(DRIVER.abort(request_id)))[0] == 200
    assert [finishes(payloads(await rest(stream))) for stream in (first, second)] == [["abort"], ["abort"]]


async def test_choices_have_ids_of_their_own_so_they_are_stopped_by_closing(engine: Client) -> None:
    before = await engine.counter(ABORTED)
    generation = ask(CHAT, n=2, max_tokens=LONGEST, logit_bias=ENDLESS)
    stream = await engine.open(generation)
    body, spoken = b"", dict[int, str]()
    # either of them may be the first to speak, and speak alone for some events
    while len(spoken) < 2:
        body += await stream.read()
        spoken = {choice["index"]: event["id"] for event in whole(body) for choice in event["choices"]}
    assert len(set(spoken.values())) == 2
    assert generation.request_id not in spoken.values()
    assert DRIVER.abort(generation.request_id, generation.choices) is None
    stream.close()
    await engine.idle()
    assert await engine.counter(ABORTED) == before + 2, "neither came to its end"


def whole(body: bytes) -> list[Any]:
    """The events that have come in full."""
    return payloads(body[: body.rfind(b"\n\n") + 2])


async def test_closing_stops_one_choice_too(engine: Client) -> None:
    before = await engine.counter(ABORTED)
    stream = await opened(engine, ask(CHAT, max_tokens=LONGEST, logit_bias=ENDLESS))
    stream.close()
    await engine.idle()
    assert await engine.counter(ABORTED) == before + 1


async def test_aborting_an_unknown_id_is_harmless(engine: Client) -> None:
    assert (await engine.fetch(DRIVER.abort("req_never")))[0] == 200
