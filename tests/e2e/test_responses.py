"""The Responses API on the shipped chat model gives what chat completions give."""

from __future__ import annotations

from typing import Any

import msgspec
import openai

from tests.deployment import Deployment

QUESTION = "What is the capital of France?"
MESSAGES: list[Any] = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": QUESTION}]
SWITCH: dict[str, Any] = {
    "name": "switch",
    "description": "Turns the light on or off.",
    "parameters": {
        "type": "object",
        "properties": {"light": {"enum": ["on", "off"]}},
        "required": ["light"],
        "additionalProperties": False,
    },
}


async def test_text_and_usage_are_those_of_chat(client: openai.AsyncOpenAI, embedded: Deployment) -> None:
    chat = await client.chat.completions.create(model="slipstream-chat", messages=MESSAGES, temperature=0)
    asked: Any = {"model": "slipstream-chat", "instructions": "Answer briefly.", "input": QUESTION}
    raw = await client.responses.with_raw_response.create(**asked, temperature=0)
    whole = raw.parse()
    assert chat.usage is not None
    assert whole.usage is not None
    assert whole.output_text == chat.choices[0].message.content
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (
        chat.usage.prompt_tokens,
        chat.usage.completion_tokens,
    )
    async with client.responses.stream(**asked, temperature=0) as stream:
        text = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
        streamed = await stream.get_final_response()
    assert text == streamed.output_text == whole.output_text
    assert (await client.responses.input_tokens.count(**asked)).input_tokens == whole.usage.input_tokens
    [row] = await embedded.ledger(raw.headers["x-request-id"])
    assert (row["endpoint"], row["prompt_tokens"], row["completion_tokens"]) == (
        "responses",
        whole.usage.input_tokens,
        whole.usage.output_tokens,
    )
    assert raw.headers["x-request-id"] in await embedded.command("requests", "show", whole.id)


async def test_a_call_and_its_result_go_round_by_the_store_and_without_it(client: openai.AsyncOpenAI) -> None:
    tools: Any = [{"type": "function", **SWITCH, "strict": False}]
    settings: Any = {"model": "slipstream-chat", "tools": tools, "temperature": 0, "max_output_tokens": 200}
    first = await client.responses.create(**settings, input="Turn on the light.", tool_choice="required", store=True)
    [call] = first.output
    assert call.type == "function_call"
    assert call.name == "switch"
    assert set(msgspec.json.decode(call.arguments)) == {"light"}
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    stored = await client.responses.create(**settings, input=[result], previous_response_id=first.id)
    spelled = await client.responses.create(
        **settings, input=[{"role": "user", "content": "Turn on the light."}, call.to_dict(), result]
    )
    assert stored.output_text == spelled.output_text != ""
    assert stored.usage is not None
    assert spelled.usage is not None
    assert stored.usage.input_tokens == spelled.usage.input_tokens


async def test_a_schema_is_kept(client: openai.AsyncOpenAI) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
              "additionalProperties": False}  # fmt: skip
    response = await client.responses.create(
        model="slipstream-chat",
        input=QUESTION,
        temperature=0,
        text={"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}},
    )
    assert msgspec.json.decode(response.output_text)["city"] in ("Paris", "Rome")
