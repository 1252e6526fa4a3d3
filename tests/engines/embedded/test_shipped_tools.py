"""The shipped chat model takes tools: calls are held to their schemas, whatever such a small model would say."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

SWITCH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "switch",
        "description": "Turns the light on or off.",
        "parameters": {
            "type": "object",
            "properties": {"light": {"enum": ["on", "off"]}},
            "required": ["light"],
            "additionalProperties": False,
        },
    },
}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "clock"}}
ASKED: list[Any] = [{"role": "user", "content": "Turn on the light."}]


async def answer(chat: openai.AsyncOpenAI, **asked: Any) -> Any:
    settings = {"model": "slipstream-chat", "messages": ASKED, "temperature": 0, "max_tokens": 200, **asked}
    return await chat.chat.completions.create(**settings)


@pytest.mark.parametrize("tools", [[SWITCH], [SWITCH, CLOCK]])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "switch"}}])
async def test_a_forced_call_is_one_that_parses_and_its_result_is_read(
    chat: openai.AsyncOpenAI, tools: list[Any], choice: Any
) -> None:
    (first,) = (await answer(chat, tools=tools, tool_choice=choice)).choices
    assert first.finish_reason == "tool_calls"
    assert first.message.content is None
    (call,) = first.message.tool_calls
    arguments = json.loads(call.function.arguments)
    assert (call.function.name, set(arguments)) in [("switch", {"light"}), ("clock", set())]
    result = {"role": "tool", "tool_call_id": call.id, "content": "done"}
    history = [*ASKED, first.message.model_dump(exclude_none=True), result]
    (second,) = (await answer(chat, messages=history, tools=tools)).choices
    assert second.message.content


async def test_a_streamed_call_is_the_whole_one(chat: openai.AsyncOpenAI) -> None:
    asked: dict[str, Any] = {"tools": [SWITCH], "tool_choice": "required"}
    (whole,) = (await answer(chat, **asked)).choices
    parts = ""
    async for chunk in await answer(chat, stream=True, **asked):
        for call in chunk.choices[0].delta.tool_calls or [] if chunk.choices else []:
            parts += call.function.arguments or ""
    assert parts == whole.message.tool_calls[0].function.arguments


async def test_tools_that_may_be_called_leave_the_model_its_answer(chat: openai.AsyncOpenAI) -> None:
    (choice,) = (await answer(chat, tools=[CLOCK], messages=[{"role": "user", "content": "Hello"}])).choices
    assert choice.message.content or choice.message.tool_calls


async def test_several_calls_are_taken_where_they_are_asked_for(chat: openai.AsyncOpenAI) -> None:
    asked: dict[str, Any] = {"tools": [SWITCH], "tool_choice": "required", "parallel_tool_calls": True}
    (choice,) = (await answer(chat, **asked)).choices
    assert len(choice.message.tool_calls) > 1, "it knows no end of them"
