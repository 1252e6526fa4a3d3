"""Forms, log probabilities and refusals through the whole deployment, with the OpenAI SDK."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

SCHEMA = {
    "type": "object",
    "properties": {"town": {"type": "string", "maxLength": 20}, "sure": {"type": "boolean"}},
    "required": ["town", "sure"],
    "additionalProperties": False,
}
FORM: Any = {"type": "json_schema", "json_schema": {"name": "capital", "schema": SCHEMA, "strict": True}}
ASK: Any = [{"role": "user", "content": "What is the capital of France?"}]


async def test_json_by_schema_whole_and_streamed(client: openai.AsyncOpenAI) -> None:
    body: dict[str, Any] = {"model": "slipstream-chat", "messages": ASK, "response_format": FORM, "temperature": 0}
    answer = await client.chat.completions.create(max_tokens=100, **body)
    content = answer.choices[0].message.content
    assert content is not None
    assert set(json.loads(content)) == {"town", "sure"}
    assert answer.choices[0].finish_reason == "stop"
    stream = await client.chat.completions.create(max_tokens=100, stream=True, **body)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == content


async def test_a_form_that_cannot_be_enforced_is_a_bad_request_that_names_it(client: openai.AsyncOpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}}
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model="slipstream-chat", messages=ASK, response_format=form)
    assert "response_format.json_schema" in str(refused.value)


async def test_a_forced_call_of_the_shipped_model_keeps_to_its_schema(client: openai.AsyncOpenAI) -> None:
    form = {"type": "object", "properties": {"light": {"enum": ["on", "off"]}}, "required": ["light"]}
    tool: Any = {
        "type": "function",
        "function": {"name": "switch", "parameters": {**form, "additionalProperties": False}},
    }
    answer = await client.chat.completions.create(
        model="slipstream-chat", messages=ASK, tools=[tool], tool_choice="required", max_tokens=200, temperature=0
    )
    (choice,) = answer.choices
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert (choice.finish_reason, call.function.name) == ("tool_calls", "switch")
    assert json.loads(call.function.arguments)["light"] in ("on", "off")


async def test_the_prompts_log_probabilities(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(
        model="slipstream-code", prompt="import os\n", echo=True, logprobs=2, max_tokens=1, temperature=0
    )
    (choice,) = answer.choices
    assert choice.text.startswith("import os\n")
    assert choice.logprobs is not None
    assert choice.logprobs.token_logprobs is not None
    assert choice.logprobs.token_logprobs[0] is None
    assert all(value is not None and value <= 0 for value in choice.logprobs.token_logprobs[1:])
    assert answer.usage is not None
    assert len(choice.logprobs.token_logprobs) == answer.usage.total_tokens
