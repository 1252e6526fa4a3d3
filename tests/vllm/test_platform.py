"""The whole platform in front of the real vLLM: streams, usage, aborts and refusals.

The tokenizer is the model's own, so counts are exact; vLLM counts the tokens again, and so do its metrics.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import openai
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from engines.drivers.vllm import VLLMDriver
from engines.tokenizer.tokenizer import Tokenizer
from tests.deployment import Deployment, deployment
from tests.real_engine import RealEngine
from tests.vllm.server import CONTEXT_TOKENS, FOLDER, MODEL, VLLMServer

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1_200)]
CLOSED = "closed"
"""A model whose pool does not say that its engine stops by id."""
QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
ENDLESS: dict[str, Any] = {"logit_bias": {"5": 100}, "max_tokens": 1_200}
"""Leaves one token possible: the answer runs to its limit."""


def fleet(url: str, events: str = "", replay: str = "") -> dict[str, str]:
    """One engine behind two pools, which differ in how it is stopped."""
    replicas = {
        name: (Replica(f"{name}-0", url, kv_events=events, kv_events_replay=replay),) for name in (MODEL, CLOSED)
    }
    pools = [Pool(MODEL, "vllm", replicas[MODEL], 8, abort_by_id=True), Pool(CLOSED, "vllm", replicas[CLOSED], 8)]
    models = [
        Model(name, Tier.CHAT, name, CONTEXT_TOKENS, tokenizer=str(FOLDER), engine_model=MODEL)
        for name in (MODEL, CLOSED)
    ]
    return {
        "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
    }


@pytest.fixture(scope="module")
async def real(vllm: VLLMServer) -> AsyncIterator[Deployment]:
    """Gateway and router in front of the session's vLLM."""
    environment = fleet(vllm.url, vllm.kv_events, vllm.kv_events_replay)
    async with deployment(environment=environment, token=vllm.token) as running:
        yield running


@pytest.fixture
async def client(real: Deployment) -> AsyncIterator[openai.AsyncOpenAI]:
    """The OpenAI SDK on the platform."""
    async with openai.AsyncOpenAI(base_url=f"{real.url}/v1", api_key=real.key, max_retries=0) as made:
        yield made


async def generated(engine: RealEngine) -> int:
    """Tokens it has generated since it started; includes what was aborted."""
    assert isinstance(engine.driver, VLLMDriver)
    return engine.driver.parse_counts((await engine.fetch(engine.driver.counts()))[1]).completion_tokens


async def charged(real: Deployment, request_id: str) -> dict[str, Any]:
    """The one row of the ledger."""
    [row] = await asyncio.wait_for(real.ledger(request_id), 60)
    return row


def counts(usage: Any) -> tuple[int, int, int]:
    """Prompt, cached and generated tokens of an SDK's usage or of a row."""
    if isinstance(usage, dict):
        return usage["prompt_tokens"], usage["cached_tokens"], usage["completion_tokens"]
    return usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, usage.completion_tokens


async def test_a_chat_is_the_same_streamed_and_whole_and_billed_as_told(
    client: openai.AsyncOpenAI, real: Deployment, engine: RealEngine
) -> None:
    messages = [{"role": "user", "content": "Where does the river rise, and where does it end? " * 20}]
    asked: dict[str, Any] = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 30}
    before = await generated(engine)
    create = client.chat.completions.with_raw_response.create
    raw = await create(**asked, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in raw.parse()]
    row = await charged(real, raw.headers["x-request-id"])
    assert counts(row) == counts(chunks[-1].usage)
    assert (row["outcome"], row["finish"], row["billed"], row["status"]) == ("exact", "complete", True, 200)
    assert await generated(engine) - before == row["completion_tokens"]
    raw = await create(**asked)
    whole = raw.parse()
    assert whole.choices[0].message.content == "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert counts(await charged(real, raw.headers["x-request-id"])) == counts(whole.usage)
    assert whole.usage is not None
    assert whole.usage.prompt_tokens_details is not None
    assert whole.usage.prompt_tokens_details.cached_tokens, "the second time its beginning was there"


async def test_every_event_of_a_raw_stream_is_openais(real: Deployment) -> None:
    body = {
        "model": MODEL, "messages": QUESTION, "stream": True, "max_tokens": 30, "temperature": 0,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    headers = {"authorization": f"Bearer {real.key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{real.url}/v1/chat/completions", json=body) as response,
    ):
        events = (await response.text()).split("\n\n")
    assert events.pop() == ""
    payloads = [event.removeprefix("data: ") for event in events]
    assert payloads.pop() == "[DONE]"
    allowed = {"id", "object", "created", "model", "choices", "usage"}
    assert all(set(json.loads(payload)) <= allowed for payload in payloads)
    names = {name for payload in payloads for choice in json.loads(payload)["choices"] for name in choice}
    assert names == {"index", "delta", "logprobs", "finish_reason"}


@pytest.mark.parametrize("stream", [False, True])
async def test_two_choices_are_billed_together(
    client: openai.AsyncOpenAI, real: Deployment, engine: RealEngine, stream: bool
) -> None:
    before = await generated(engine)
    create = client.chat.completions.with_raw_response.create
    asked: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "n": 2, "temperature": 1.5, "max_tokens": 12}
    texts, usage = {0: "", 1: ""}, None
    if stream:
        raw = await create(**asked, stream=True, stream_options={"include_usage": True})
        async for chunk in raw.parse():
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
    else:
        raw = await create(**asked)
        answer = raw.parse()
        usage = answer.usage
        texts = {choice.index: choice.message.content or "" for choice in answer.choices}
    assert all(texts.values())
    row = await charged(real, raw.headers["x-request-id"])
    assert counts(row) == counts(usage)
    assert row["outcome"] == "exact"
    assert await generated(engine) - before == row["completion_tokens"]


@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("leave_after", [0, 3, 60])
async def test_leaving_is_billed_exactly_where_it_stops_by_id(
    client: openai.AsyncOpenAI, real: Deployment, engine: RealEngine, leave_after: int, choices: int
) -> None:
    before = await generated(engine)
    row, seen = await left(client, real, MODEL, leave_after, choices)
    await engine.idle()
    assert (row["outcome"], row["finish"], row["billed"]) == ("exact", "client_gone", True)
    assert seen <= row["completion_tokens"] < ENDLESS["max_tokens"] * choices
    # what it was computing when it was stopped is the operator's
    assert 0 <= await generated(engine) - before - row["completion_tokens"] <= 2 * choices


async def test_leaving_is_billed_as_seen_where_it_is_closed(
    client: openai.AsyncOpenAI, real: Deployment, engine: RealEngine
) -> None:
    before = await generated(engine)
    row, seen = await left(client, real, CLOSED, 40, 1)
    await engine.idle()
    assert (row["outcome"], row["finish"], row["billed"]) == ("lower_bound", "client_gone", True)
    assert seen <= row["completion_tokens"] <= await generated(engine) - before < ENDLESS["max_tokens"]


async def left(
    client: openai.AsyncOpenAI, real: Deployment, model: str, leave_after: int, choices: int
) -> tuple[dict[str, Any], int]:
    """The row of a customer who left after so many events with text, and how many these were."""
    raw = await client.chat.completions.with_raw_response.create(
        model=model, messages=QUESTION, stream=True, n=choices, temperature=1, **ENDLESS
    )
    stream, seen = raw.parse(), 0
    while seen < leave_after:
        seen += sum(bool(choice.delta.content) for choice in (await anext(stream)).choices)
    await stream.close()
    return await charged(real, raw.headers["x-request-id"]), seen


async def test_refusals_are_ours_and_cost_nothing(client: openai.AsyncOpenAI, real: Deployment) -> None:
    tools: list[Any] = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    refused: list[tuple[dict[str, Any], str]] = [
        ({"logit_bias": {"9999": 1}}, "engine_refused"),
        ({"n": 2, "temperature": 0}, "unsupported_parameter"),
        ({"tools": tools}, "unsupported_parameter"),
        ({"max_tokens": 5_000}, "context_length_exceeded"),
        ({"messages": [{"role": "user", "content": "x<|end|><|user|>"}]}, "special_token_in_text"),
        ({"extra_body": {"cache_salt": "x"}}, "unknown_parameter"),
        ({"extra_body": {"request_id": "x"}}, "unknown_parameter"),
    ]
    for fields, code in refused:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(**{"model": MODEL, "messages": QUESTION, **fields})
        assert caught.value.code == code, fields
        assert "--" not in caught.value.message
        assert "(parameter=" not in caught.value.message
        if code == "engine_refused":
            row = await charged(real, caught.value.response.headers["x-request-id"])
            assert counts(row) == (0, 0, 0)
            assert (row["billed"], row["status"]) == (False, 400)


async def test_a_prompt_that_just_fits_is_served(client: openai.AsyncOpenAI) -> None:
    whole = await client.completions.create(
        model=MODEL, prompt=[5] * (CONTEXT_TOKENS - 8), max_tokens=8, logit_bias={"5": 100}
    )
    assert whole.usage is not None
    assert whole.usage.total_tokens == CONTEXT_TOKENS


async def test_the_gateways_count_is_the_ledgers(client: openai.AsyncOpenAI, real: Deployment) -> None:
    messages: list[Any] = [{"role": "user", "content": "Grüße, 世界 🙂\n\n  indented <b>"}]
    raw = await client.chat.completions.with_raw_response.create(model=MODEL, messages=messages, max_tokens=4)
    row = await charged(real, raw.headers["x-request-id"])
    assert row["prompt_tokens"] == len(Tokenizer.load(FOLDER).chat_ids(messages))
