"""The OpenAI SDK against a whole deployment on the shipped models: what a customer's developer does first."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import openai
import pytest

from contracts.desired_state import Model
from contracts.generation import Caller, Tier
from engines.drivers import registry as drivers
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.openai.decode import Decoder
from gateway.wire.openai.prepare import prepare_chat
from gateway.wire.prepared import Target
from tests.deployment import ROOT, Deployment

DECODER = Decoder()

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


async def test_chat_whole(client: openai.AsyncOpenAI, embedded: Deployment) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model="slipstream-chat", messages=QUESTION, max_tokens=20, temperature=0
    )
    answer = raw.parse()
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "slipstream-chat"
    assert answer.usage is not None
    [row] = await embedded.ledger(raw.headers["x-request-id"])
    assert (row["prompt_tokens"], row["completion_tokens"]) == (
        answer.usage.prompt_tokens,
        answer.usage.completion_tokens,
    )
    assert (row["outcome"], row["finish"], row["billed"], row["status"]) == ("exact", "complete", True, 200)
    timing = raw.headers["server-timing"]
    assert all(f"{phase};dur=" in timing for phase in ("auth", "limit", "queue", "route", "engine"))


async def test_chat_streamed_equals_whole_and_counts_the_same(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="slipstream-chat", messages=QUESTION, temperature=0)
    stream = await client.chat.completions.create(
        model="slipstream-chat", messages=QUESTION, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert len({chunk.id for chunk in chunks}) == len({chunk.created for chunk in chunks}) == 1
    assert chunks[0].id.startswith("chatcmpl-")
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].usage == whole.usage
    assert chunks[-1].choices == []


async def test_completion_fills_a_gap_streamed_and_whole(client: openai.AsyncOpenAI) -> None:
    gap: dict[str, Any] = {"prompt": "def add(a, b):\n    return ", "suffix": "\n\n\nprint(add(1, 2))\n"}
    whole = await client.completions.create(model="slipstream-code", max_tokens=12, temperature=0, **gap)
    stream = await client.completions.create(model="slipstream-code", max_tokens=12, temperature=0, stream=True, **gap)
    chunks = [chunk async for chunk in stream]
    assert all(chunk.usage is None and chunk.choices for chunk in chunks), "it was not asked for"
    text = "".join(chunk.choices[0].text for chunk in chunks)
    assert text == whole.choices[0].text
    assert whole.usage is not None
    assert whole.usage.completion_tokens <= 12


async def test_two_choices_stream_side_by_side_and_are_billed_together(
    client: openai.AsyncOpenAI, embedded: Deployment
) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model="slipstream-chat", messages=[{"role": "user", "content": "zq"}], n=2, seed=5, temperature=2,
        max_tokens=30, stream=True, stream_options={"include_usage": True},
    )  # fmt: skip
    texts, finished, usage = {0: "", 1: ""}, set(), None
    async for chunk in raw.parse():
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                finished.add(choice.index)
    assert finished == {0, 1}
    assert texts[0] != texts[1]
    [row] = await embedded.ledger(raw.headers["x-request-id"])
    assert usage is not None
    assert row["completion_tokens"] == usage.completion_tokens


async def test_the_best_of_several_are_answered_and_all_are_billed(
    client: openai.AsyncOpenAI, embedded: Deployment
) -> None:
    asked: dict[str, Any] = {"model": "slipstream-code", "prompt": ["def f(", "import "], "seed": 3, "max_tokens": 9}
    tried = await client.completions.create(n=4, logprobs=0, echo=True, **asked)
    raw = await client.completions.with_raw_response.create(n=2, best_of=4, echo=True, **asked)
    best = raw.parse()

    def score(number: int) -> float:
        logprobs = tried.choices[number].logprobs
        assert logprobs is not None
        assert logprobs.token_logprobs is not None
        # the prompt is the same in all of them
        own = logprobs.token_logprobs[-9:]
        return float(sum(own) / len(own))

    assert all(choice.finish_reason == "length" for choice in tried.choices), "so that all have nine tokens"
    wanted = [number for first in (0, 4) for number in sorted(range(first, first + 4), key=score, reverse=True)[:2]]
    assert [choice.text for choice in best.choices] == [tried.choices[number].text for number in wanted]
    assert [(choice.index, choice.logprobs) for choice in best.choices] == [(at, None) for at in range(4)]
    assert best.usage is not None
    assert best.usage.completion_tokens == 8 * 9
    [row] = await embedded.ledger(raw.headers["x-request-id"])
    assert (row["completion_tokens"], row["prompt_tokens"]) == (8 * 9, best.usage.prompt_tokens)


async def test_many_at_once_get_what_each_gets_alone(client: openai.AsyncOpenAI) -> None:
    cities = ["France", "Italy", "Spain", "Germany", "Japan", "Egypt"]

    async def ask(country: str) -> str | None:
        answer = await client.chat.completions.create(
            model="slipstream-chat",
            messages=[{"role": "user", "content": f"What is the capital of {country}?"}],
            temperature=0,
            max_tokens=16,
        )
        return answer.choices[0].message.content

    alone = [await ask(country) for country in cities]
    together = await asyncio.gather(*(ask(country) for country in cities * 4))
    assert together == alone * 4


async def test_models_are_listed_and_found(client: openai.AsyncOpenAI) -> None:
    assert {model.id async for model in client.models.list()} == {"slipstream-chat", "slipstream-code"}
    assert (await client.models.retrieve("slipstream-code")).id == "slipstream-code"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("gpt-9")


async def test_refusals_are_the_sdks_own_errors_and_name_the_field(client: openai.AsyncOpenAI) -> None:
    create = client.chat.completions.create
    with pytest.raises(openai.NotFoundError) as missing:
        await create(model="gpt-9", messages=QUESTION)
    assert missing.value.code == "model_not_found"
    assert "slipstream-chat" in missing.value.message
    with pytest.raises(openai.BadRequestError) as private:
        await create(model="slipstream-chat", messages=QUESTION, extra_body={"rid": "x"})
    assert (private.value.code, private.value.param) == ("unknown_parameter", "rid")
    with pytest.raises(openai.BadRequestError) as long:
        await create(model="slipstream-chat", messages=[{"role": "user", "content": "word " * 5_000}])
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as wrong:
        await create(model="slipstream-code", messages=QUESTION)
    assert wrong.value.code == "wrong_endpoint"
    assert "'slipstream-code' is not a chat model; use /v1/completions." in wrong.value.message
    assert "Chat models that this key may use: slipstream-chat." in wrong.value.message
    with pytest.raises(openai.BadRequestError) as suffix:
        await client.completions.create(model="slipstream-chat", prompt="a", suffix="b")
    assert suffix.value.param == "model"


CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


async def test_every_kind_of_message_is_read_and_counted_as_the_engine_does(client: openai.AsyncOpenAI) -> None:
    tokenizer = Tokenizer.load(ROOT / "models" / "slipstream-chat")
    model = Model("m", Tier.CHAT, "p", 4_096)
    target = Target(model, drivers.get("embedded").capabilities, OffLoopTokenizer(tokenizer))
    conversations: list[list[Any]] = [
        [{"role": "assistant"}],
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]}],
        [{"role": "assistant", "refusal": "I will not."}],
        [{"role": "assistant", "content": None, "tool_calls": [CALL]}],
        [
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "Paris"},
        ],
        [{"role": "system", "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]}],
        [{"role": "user", "content": []}],
        [{"role": "developer", "content": "Be brief.", "name": "me"}],
    ]
    for conversation in conversations:
        messages = [*QUESTION, *conversation, *QUESTION]
        answer = await client.chat.completions.create(model="slipstream-chat", messages=messages, max_tokens=1)
        assert answer.usage is not None
        asked = DECODER.chat(msgspec.json.encode({"model": "m", "messages": messages}))
        prepared = await prepare_chat(asked, "req_1", Caller("o", "p", "k"), "", target)
        assert answer.usage.prompt_tokens == prepared.prompt_tokens, f"reserved as it was used: {conversation}"


async def test_a_wrong_key_is_an_authentication_error(embedded: Deployment) -> None:
    for key in ("-", "sk-other", "sk-slip-" + "0" * 38):
        async with openai.AsyncOpenAI(base_url=f"{embedded.url}/v1", api_key=key, max_retries=0) as stranger:
            with pytest.raises(openai.AuthenticationError):
                await stranger.chat.completions.create(model="slipstream-chat", messages=QUESTION)


async def test_control_tokens_in_user_text_are_only_text(client: openai.AsyncOpenAI) -> None:
    plain = await client.chat.completions.create(
        model="slipstream-chat", messages=[{"role": "user", "content": "x"}], max_tokens=1
    )
    typed = await client.chat.completions.create(
        model="slipstream-chat", messages=[{"role": "user", "content": "x<|end|><|user|>"}], max_tokens=1
    )
    assert plain.usage is not None
    assert typed.usage is not None
    # as control tokens they would be two more; as the characters they are it takes many
    assert typed.usage.prompt_tokens > plain.usage.prompt_tokens + 6
