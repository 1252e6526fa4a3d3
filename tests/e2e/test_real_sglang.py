"""The whole platform in front of the real SGLang instead of the embedded engine: streams, usage, aborts, refusals.

The tokenizer is the model's own, so counts are exact; SGLang counts the tokens again, and so do its metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import aiohttp
import openai
import pytest

from engines.drivers import registry as drivers
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from engines.tokenizer.tokenizer import Tokenizer
from tests.deployment import Deployment, deployment, fake_fleet
from tests.real_engine import GUARD_S
from tests.sglang.client import Client
from tests.sglang.server import MODELS, SGLangServer

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(400)]
DRIVER = drivers.get("sglang")
MODEL = "tiny"
OPENING_TOKENS = 4
"""Of the chat template, before what a user writes."""
QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
ENDLESS: dict[str, Any] = {"logit_bias": {"5": 100}, "max_tokens": 1_500}
"""Leaves one token possible: the answer runs to its limit."""


async def generated(engine: Client) -> int:
    """Tokens it has generated since it started, by its own metrics; includes what was aborted."""
    return int(await engine.counter("sglang:generation_tokens_total"))


@pytest.fixture(scope="session")
async def real(sglang: SGLangServer) -> AsyncIterator[Deployment]:
    """Gateway and router in front of the real SGLang."""
    fleet = fake_fleet(
        sglang.url, model=MODEL, driver="sglang", tokenizer=str(MODELS / "slipstream-chat"), context_tokens=2_048
    )
    async with deployment(environment=fleet, token=sglang.token) as running:
        yield running


@pytest.fixture
async def real_client(real: Deployment) -> AsyncIterator[openai.AsyncOpenAI]:
    """The OpenAI SDK on the platform."""
    async with openai.AsyncOpenAI(base_url=f"{real.url}/v1", api_key=real.key, max_retries=0) as made:
        yield made


@pytest.fixture
async def direct(sglang: SGLangServer) -> AsyncIterator[openai.AsyncOpenAI]:
    """The OpenAI SDK on the engine itself."""
    async with openai.AsyncOpenAI(base_url=f"{sglang.url}/v1", api_key=sglang.token, max_retries=0) as made:
        yield made


@pytest.fixture
async def engine(sglang: SGLangServer) -> AsyncIterator[Client]:
    """The real engine, asked past the platform; idle."""
    connections = EngineConnections(OneKey(sglang.token))
    engine = Client(sglang, connections)
    await engine.idle()
    yield engine
    await connections.close()


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """The model's."""
    return Tokenizer.load(MODELS / "slipstream-chat")


async def charged(real: Deployment, request_id: str) -> dict[str, Any]:
    """The one row of the ledger."""
    [row] = await asyncio.wait_for(real.ledger(request_id), GUARD_S)
    return row


def counts(usage: Any) -> tuple[int, int, int]:
    """Prompt, cached and generated tokens of an SDK's usage or of a row."""
    if isinstance(usage, dict):
        return usage["prompt_tokens"], usage["cached_tokens"], usage["completion_tokens"]
    return usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, usage.completion_tokens


async def cached_tokens(real: Deployment, client: openai.AsyncOpenAI, prompt: str) -> int:
    """Of a prompt, as told and as charged."""
    raw = await client.completions.with_raw_response.create(model=MODEL, prompt=prompt, max_tokens=1)
    row = await charged(real, raw.headers["x-request-id"])
    assert counts(row) == counts(raw.parse().usage)
    return int(row["cached_tokens"])


async def test_chat_streamed(real_client: openai.AsyncOpenAI, real: Deployment) -> None:
    raw = await real_client.chat.completions.with_raw_response.create(
        model=MODEL, messages=QUESTION, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in raw.parse()]
    assert len({(chunk.id, chunk.model, chunk.created) for chunk in chunks}) == 1
    assert (chunks[0].id[:9], chunks[0].model) == ("chatcmpl-", MODEL)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert all("matched_stop" not in chunk.model_dump_json() for chunk in chunks)
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    row = await charged(real, raw.headers["x-request-id"])
    assert counts(row) == counts(chunks[-1].usage)
    assert (row["outcome"], row["finish"], row["billed"], row["status"]) == ("exact", "complete", True, 200)
    assert all(f"{phase};dur=" in raw.headers["server-timing"] for phase in ("auth", "limit", "route", "engine"))


async def test_chat_whole_is_what_the_stream_was(real_client: openai.AsyncOpenAI, real: Deployment) -> None:
    raw = await real_client.chat.completions.with_raw_response.create(model=MODEL, messages=QUESTION, temperature=0)
    whole = raw.parse()
    stream = await real_client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0, stream=True)
    streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert whole.choices[0].message.content == streamed
    assert (whole.choices[0].finish_reason, whole.choices[0].message.role) == ("stop", "assistant")
    assert counts(await charged(real, raw.headers["x-request-id"])) == counts(whole.usage)


async def test_usage_is_what_the_engine_counts_without_us(
    real_client: openai.AsyncOpenAI, direct: openai.AsyncOpenAI, real: Deployment, engine: Client, tokenizer: Tokenizer
) -> None:
    conversation: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Grüße, 世界 🙂\n\n  indented <b>"},
    ]
    asked: Any
    for max_tokens, n in ((7, 1), (60, 1), (5, 3)):
        asked = {"model": MODEL, "messages": conversation, "temperature": 0, "max_tokens": max_tokens, "n": n}
        theirs = (await direct.chat.completions.create(**asked)).usage
        before = await generated(engine)
        raw = await real_client.chat.completions.with_raw_response.create(**asked)
        ours, row = raw.parse().usage, await charged(real, raw.headers["x-request-id"])
        assert theirs is not None
        assert ours is not None
        assert (ours.prompt_tokens, ours.completion_tokens) == (theirs.prompt_tokens, theirs.completion_tokens)
        assert counts(row) == counts(ours)
        assert ours.prompt_tokens == len(tokenizer.chat_ids(conversation))
        assert await generated(engine) - before == row["completion_tokens"]


async def test_completions_streamed_and_whole_with_control_strings_as_text(
    real_client: openai.AsyncOpenAI, real: Deployment, tokenizer: Tokenizer
) -> None:
    text = "<|end|> is only text here <|user|>"
    raw = await real_client.completions.with_raw_response.create(model=MODEL, prompt=text, temperature=0, max_tokens=12)
    whole = raw.parse()
    stream = await real_client.completions.create(model=MODEL, prompt=text, temperature=0, max_tokens=12, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == whole.choices[0].text
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == tokenizer.count(text), "as control tokens they would be fewer"
    assert counts(await charged(real, raw.headers["x-request-id"])) == counts(whole.usage)


@pytest.mark.parametrize("stream", [False, True])
async def test_two_choices_are_billed_together(
    real_client: openai.AsyncOpenAI, real: Deployment, engine: Client, stream: bool
) -> None:
    before = await generated(engine)
    create = real_client.chat.completions.with_raw_response.create
    asked: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "n": 2, "temperature": 1.5, "max_tokens": 12}
    texts, finished, usage = {0: "", 1: ""}, set(), None
    if stream:
        raw = await create(**asked, stream=True, stream_options={"include_usage": True})
        async for chunk in raw.parse():
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                finished |= {choice.index} if choice.finish_reason else set()
    else:
        raw = await create(**asked)
        answer = raw.parse()
        usage = answer.usage
        for choice in answer.choices:
            texts[choice.index] = choice.message.content or ""
            finished.add(choice.index)
    assert finished == {0, 1}
    assert all(texts.values())
    row = await charged(real, raw.headers["x-request-id"])
    assert counts(row) == counts(usage)
    assert row["outcome"] == "exact"
    assert await generated(engine) - before == row["completion_tokens"]


@pytest.mark.parametrize("leave_after", [0, 1, 3, 12, 60, 300])
async def test_leaving_a_stream_stops_the_engine_and_bills_exactly_what_it_made(
    real_client: openai.AsyncOpenAI, real: Deployment, engine: Client, tokenizer: Tokenizer, leave_after: int
) -> None:
    before = await generated(engine)
    raw = await real_client.chat.completions.with_raw_response.create(
        model=MODEL, messages=QUESTION, stream=True, **ENDLESS
    )
    stream, seen = raw.parse(), 0
    while seen < leave_after:
        seen += bool((await anext(stream)).choices[0].delta.content)
    await stream.close()
    row = await charged(real, raw.headers["x-request-id"])
    await engine.idle()
    assert await generated(engine) - before == row["completion_tokens"]
    assert (row["outcome"], row["finish"], row["billed"]) == ("exact", "client_gone", True)
    assert seen <= row["completion_tokens"] < ENDLESS["max_tokens"]
    assert row["prompt_tokens"] == len(tokenizer.chat_ids(QUESTION))


async def test_leaving_at_many_points_at_once_is_exact_for_each(
    real_client: openai.AsyncOpenAI, real: Deployment, engine: Client
) -> None:
    before = await generated(engine)

    async def leave(number: int) -> tuple[str, int]:
        raw = await real_client.completions.with_raw_response.create(
            model=MODEL, prompt=f"file {number}", stream=True, **ENDLESS
        )
        stream, seen = raw.parse(), 0
        while seen < 5 * number:
            await anext(stream)
            seen += 1
        await stream.close()
        return raw.headers["x-request-id"], seen

    left = dict(await asyncio.gather(*(leave(number) for number in range(12))))
    rows = await asyncio.wait_for(real.ledger(*left), GUARD_S)
    await engine.idle()
    assert await generated(engine) - before == sum(row["completion_tokens"] for row in rows)
    assert len(rows) == len(left)
    for row in rows:
        assert (row["outcome"], row["finish"]) == ("exact", "client_gone")
        assert left[row["request_id"]] <= row["completion_tokens"] < ENDLESS["max_tokens"]


async def test_leaving_a_whole_answer_stops_the_engine(
    real_client: openai.AsyncOpenAI, real: Deployment, engine: Client
) -> None:
    before, known = await generated(engine), {row["request_id"] for row in await real.ledger()}
    asking = asyncio.create_task(real_client.chat.completions.create(model=MODEL, messages=QUESTION, **ENDLESS))
    await engine.until_load(lambda load: load.running + load.waiting > 0)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    await engine.idle()
    async with asyncio.timeout(GUARD_S):
        while not (rows := [row for row in await real.ledger() if row["request_id"] not in known]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    [row] = rows
    assert (row["outcome"], row["finish"], row["status"]) == ("exact", "client_gone", 499)
    assert row["completion_tokens"] == await generated(engine) - before < ENDLESS["max_tokens"]


async def test_leaving_two_choices_closes_the_stream_and_bills_what_was_seen_of_both(
    real_client: openai.AsyncOpenAI, real: Deployment, engine: Client, tokenizer: Tokenizer
) -> None:
    before = await generated(engine)
    raw = await real_client.chat.completions.with_raw_response.create(
        model=MODEL, messages=QUESTION, stream=True, n=2, **ENDLESS
    )
    stream, seen = raw.parse(), {0: 0, 1: 0}
    while min(seen.values()) < 20:
        for choice in (await anext(stream)).choices:
            seen[choice.index] += bool(choice.delta.content)
    await stream.close()
    row = await charged(real, raw.headers["x-request-id"])
    await engine.idle()
    assert (row["outcome"], row["finish"], row["billed"]) == ("lower_bound", "client_gone", True)
    assert sum(seen.values()) <= row["completion_tokens"]
    async with asyncio.timeout(GUARD_S):
        # one of its processes counts what another has stopped already
        while await generated(engine) - before < row["completion_tokens"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert row["prompt_tokens"] == len(tokenizer.chat_ids(QUESTION))


async def test_nobody_finds_what_another_has_cached_and_everybody_what_is_their_own(
    real: Deployment, real_client: openai.AsyncOpenAI
) -> None:
    """Either way round, by what is told to each of them; the salt is the gateway's."""
    other_key = await real.make_key("--organization", "neighbours")
    async with openai.AsyncOpenAI(base_url=f"{real.url}/v1", api_key=other_key, max_retries=0) as other:
        for number, (first, second) in enumerate(((real_client, other), (other, real_client))):
            prompt = f"{uuid4()} {number}: where does the river rise, and where does it end? " * 10
            cached = [await cached_tokens(real, asking, prompt) for asking in (first, second, first, second)]
            # a question of theirs that the engine had before begins as every one does
            assert max(cached[:2]) <= OPENING_TOKENS
            assert min(cached[2:]) > 64


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "user", "content": "x<|end|><|user|>"}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text", "text": "<|en"}, {"type": "text", "text": "d|>"}]}], None),
        ([*QUESTION, {"role": "assistant", "content": "<|end|>"}, *QUESTION], "messages[1].content"),
    ],
)
async def test_control_strings_in_messages_are_refused_by_name(
    real_client: openai.AsyncOpenAI, messages: list[Any], param: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await real_client.chat.completions.create(model=MODEL, messages=messages)
    assert (refused.value.code, refused.value.param) == ("special_token_in_text", param or "messages[0].content")
    assert "<|end|>" in refused.value.message


@pytest.mark.parametrize("name", ["rid", "cache_salt", "priority", "return_hidden_states", "lora_path", "regex"])
async def test_engine_private_fields_are_refused_by_name(real_client: openai.AsyncOpenAI, name: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await real_client.chat.completions.create(model=MODEL, messages=QUESTION, extra_body={name: "x"})
    assert (refused.value.code, refused.value.param) == ("unknown_parameter", name)


async def test_token_ids_outside_the_vocabulary_never_reach_the_engine(
    real_client: openai.AsyncOpenAI, engine: Client
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await real_client.completions.create(model=MODEL, prompt=[5, 2_048], max_tokens=1)
    assert (refused.value.code, refused.value.param) == ("invalid_value", "prompt")
    assert (await real_client.completions.create(model=MODEL, prompt=[5, 2_047], max_tokens=1)).usage is not None


async def test_the_engines_own_refusal_is_passed_on_in_one_sentence(
    real_client: openai.AsyncOpenAI, real: Deployment
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await real_client.chat.completions.create(model=MODEL, messages=QUESTION, logit_bias={"9999": 1})
    assert refused.value.code == "engine_refused"
    assert "logit_bias" in refused.value.message
    row = await charged(real, refused.value.response.headers["x-request-id"])
    assert counts(row) == (0, 0, 0)
    assert (row["outcome"], row["finish"], row["billed"], row["status"]) == ("exact", "engine_error", False, 400)


async def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(real_client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await real_client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "word " * 3_000}])
    assert refused.value.code == "context_length_exceeded"
    assert "2048" in refused.value.message
    whole = await real_client.completions.create(model=MODEL, prompt=[5] * 2_040, max_tokens=8, logit_bias={"5": 100})
    assert whole.usage is not None
    assert 2_040 < whole.usage.total_tokens <= 2_048, (
        "what fits exactly is served; SGLang itself stops two tokens early"
    )


async def test_every_event_of_a_raw_stream_is_openais(real: Deployment) -> None:
    body = {"model": MODEL, "messages": QUESTION, "stream": True, "max_tokens": 30, "temperature": 0}
    headers = {"authorization": f"Bearer {real.key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{real.url}/v1/chat/completions", json=body) as response,
    ):
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = (await response.text()).split("\n\n")
    assert events.pop() == ""
    payloads = [event.removeprefix("data: ") for event in events]
    assert payloads.pop() == "[DONE]"
    allowed = {"id", "object", "created", "model", "choices"}
    assert all(set(json.loads(payload)) == allowed for payload in payloads)
    names = {name for payload in payloads for choice in json.loads(payload)["choices"] for name in choice}
    assert names == {"index", "delta", "logprobs", "finish_reason"}
