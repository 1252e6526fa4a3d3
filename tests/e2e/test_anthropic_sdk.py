"""Anthropic's own library against a whole deployment on the shipped models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest

from tests.deployment import Deployment

ASKED: Any = {
    "model": "slipstream-chat",
    "max_tokens": 20,
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "extra_body": {"temperature": 0},
}
TOOL: Any = {
    "name": "get_weather",
    "description": "The weather.",
    "input_schema": {"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"]},
}


@pytest.fixture
async def sdk(embedded: Deployment) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=embedded.url, api_key=embedded.key, max_retries=0) as made:
        yield made


async def test_a_message_is_the_same_streamed_and_whole_and_in_the_ledger(
    sdk: anthropic.AsyncAnthropic, client: openai.AsyncOpenAI, embedded: Deployment
) -> None:
    whole = await sdk.messages.create(**ASKED)
    async with sdk.messages.stream(**ASKED) as stream:
        streamed = await stream.get_final_message()
    assert whole.content[0].type == streamed.content[0].type == "text"
    assert whole.content[0].text == streamed.content[0].text
    assert "Paris" in whole.content[0].text
    same = await client.chat.completions.create(
        model="slipstream-chat", messages=ASKED["messages"], temperature=0, max_tokens=20
    )
    assert same.choices[0].message.content == whole.content[0].text
    assert same.usage is not None
    for message in (whole, streamed):
        told = message.usage
        assert told.input_tokens + (told.cache_read_input_tokens or 0) == same.usage.prompt_tokens
        [row] = await embedded.ledger("req_" + message.id.removeprefix("msg_"))
        assert (row["endpoint"], row["prompt_tokens"], row["completion_tokens"]) == (
            "messages", same.usage.prompt_tokens, told.output_tokens,
        )  # fmt: skip


async def test_the_engine_names_the_stop_sequence_that_it_met(sdk: anthropic.AsyncAnthropic) -> None:
    asked = {**ASKED, "stop_sequences": ["London", "Paris"]}
    whole = await sdk.messages.create(**asked)
    async with sdk.messages.stream(**asked) as stream:
        streamed = await stream.get_final_message()
    for message in (whole, streamed):
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "Paris")


async def test_a_forced_call_goes_round_and_is_counted_before(sdk: anthropic.AsyncAnthropic) -> None:
    tools: Any = {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "get_weather"}}
    count = await sdk.messages.count_tokens(model="slipstream-chat", messages=ASKED["messages"], **tools)
    async with sdk.messages.stream(**{**ASKED, "max_tokens": 60}, **tools) as stream:
        called = await stream.get_final_message()
    assert called.stop_reason == "tool_use"
    (call,) = called.content
    assert call.type == "tool_use"
    assert call.input == {"city": "Paris"}
    assert called.usage.input_tokens + (called.usage.cache_read_input_tokens or 0) == count.input_tokens
    history = [
        *ASKED["messages"],
        {"role": "assistant", "content": called.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]},
    ]
    answer = await sdk.messages.create(**{**ASKED, "messages": history}, tools=[TOOL])
    assert answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0) > count.input_tokens
