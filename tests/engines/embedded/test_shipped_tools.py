"""The shipped chat model takes tools: calls fit their schemas although the model is small."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from tests.engines.embedded.served import served
from tests.engines.embedded.tiny import SHIPPED

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


@pytest.mark.parametrize(
    ("tools", "choice"),
    [([SWITCH], "required"), ([SWITCH, CLOCK], {"type": "function", "function": {"name": "switch"}})],
)
async def test_a_forced_call_is_one_that_parses_and_its_result_is_read(
    chat: openai.AsyncOpenAI, tools: list[Any], choice: Any
) -> None:
    (first,) = (await answer(chat, tools=tools, tool_choice=choice)).choices
    assert first.finish_reason == "tool_calls"
    assert first.message.content is None
    (call,) = first.message.tool_calls
    assert (call.function.name, set(json.loads(call.function.arguments))) == ("switch", {"light"})
    result = {"role": "tool", "tool_call_id": call.id, "content": "done"}
    history = [*ASKED, first.message.model_dump(exclude_none=True), result]
    (second,) = (await answer(chat, messages=history, tools=tools)).choices
    assert second.message.content


async def test_several_calls_are_taken_where_they_are_asked_for(chat: openai.AsyncOpenAI) -> None:
    asked: dict[str, Any] = {"tools": [SWITCH], "tool_choice": "required", "parallel_tool_calls": True}
    (choice,) = (await answer(chat, **asked)).choices
    assert len(choice.message.tool_calls) > 1, "it knows no end of them"


async def test_a_template_without_a_place_for_results_has_them_refused_by_name(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    folder = tmp_path / "slipstream-chat"
    shutil.copytree(SHIPPED / "slipstream-chat", folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    plain = "{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": plain}))
    result = {"role": "tool", "tool_call_id": "call_1", "content": "done"}
    asked = {"model": "slipstream-chat", "messages": [*ASKED, result]}
    async with (
        served(model=str(folder)) as engine,
        session.post(f"{engine.url}/v1/chat/completions", json=asked) as refused,
    ):
        error = await refused.json()
    assert (refused.status, error["param"]) == (400, "messages[1].role")
    assert "does not support" in error["message"]
