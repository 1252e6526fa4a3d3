"""Loops of tools that the client runs: histories in every form that clients send, and how an answer with calls ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.errors import InvalidField, RequestError
from contracts.generation import ChatPrompt
from engines.drivers.error_bodies import engine_error
from gateway.wire.config import RequestConfig
from gateway.wire.openai.format import ChatFormat
from gateway.wire.usage_tracker import UsageTracker
from tests.gateway.wire.anthropic.asking import chunk
from tests.gateway.wire.openai.preparing import DECODER, HI, chat, messages_of, target

CHAT = ChatFormat(RequestConfig())
CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOLS = [{"type": "function", "function": {"name": "look"}}]
TEXT = [{"type": "text", "text": "x"}]
NAMED = {"type": "function", "function": {"name": "look"}}
ENGINE = target(None, "vllm")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "assistant", "tool_calls": [CALL]}),
        ({"role": "assistant", "tool_calls": [CALL]}, {"role": "assistant", "tool_calls": [CALL]}),
        *[
            (
                {"role": "assistant", "content": content, "tool_calls": [CALL]},
                {"role": "assistant", "content": content, "tool_calls": [CALL]},
            )
            for content in ("", "x", [], TEXT)
        ],
        ({"role": "assistant", "content": "x", "tool_calls": []}, {"role": "assistant", "content": "x"}),
        ({"role": "assistant", "content": "x", "tool_calls": None}, {"role": "assistant", "content": "x"}),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": CALL["function"]}]},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
        ),
        *[
            (
                {"role": "tool", "tool_call_id": "a", "content": content},
                {"role": "tool", "tool_call_id": "a", "content": "" if content is None else content},
            )
            for content in (None, "", "x", [], TEXT)
        ],
    ],
)
async def test_a_history_reaches_the_engine_as_it_was_said(said: dict[str, Any], told: dict[str, Any]) -> None:
    assert messages_of(await chat(ENGINE, [*HI, said, *HI])) == (*HI, told, *HI)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [*TOOLS, {"type": "custom", "custom": {"name": "x"}}]}, "tools[1].type"),
        ({"tools": [{"type": "mcp", "server_url": "x"}]}, "tools[0].type"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "type": "custom"}]}]},
            "messages[0].tool_calls[0].type",
        ),
    ],
)
def test_a_tool_of_an_unknown_type_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as refusal:
        DECODER.chat(msgspec.json.encode({"model": "m", "messages": HI, **fields}))
    assert refusal.value.param == param
    assert param in refusal.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": "required"},
        {"tool_choice": "required", "tools": []},
        {"tool_choice": NAMED},
        {"tool_choice": {"type": "function", "function": {"name": "loook"}}, "tools": TOOLS},
    ],
)
async def test_a_call_that_cannot_be_made_is_not_required(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidField) as refusal:
        await chat(ENGINE, **fields)
    assert refusal.value.param == "tool_choice"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("choice", "engine", "calls", "reason"),
    [
        (None, "tool_calls", True, "tool_calls"),
        (None, "stop", True, "tool_calls"),
        ("auto", "stop", True, "tool_calls"),
        ("auto", "tool_calls", False, "stop"),
        ("required", "stop", True, "tool_calls"),
        ("required", "tool_calls", False, "stop"),
        (NAMED, "stop", True, "stop"),
        (NAMED, "tool_calls", True, "stop"),
        (NAMED, "length", True, "length"),
        ("required", "length", True, "length"),
        ("none", "stop", False, "stop"),
    ],
)
async def test_the_reason_follows_the_form_of_the_choice(
    choice: Any, engine: str, calls: bool, reason: str, stream: bool
) -> None:
    """As OpenAI answers, whatever the engine says; cut arguments stay as they are."""
    prepared = await chat(ENGINE, tools=TOOLS, stream=stream, **({"tool_choice": choice} if choice else {}))
    assert isinstance(prepared.generation.prompt, ChatPrompt)
    call = {"tool_calls": [{**CALL, "index": 0, "function": {"name": "look", "arguments": '{"at'}}]}
    data = chunk({"role": "assistant", **(call if calls else {"content": "x"})}) + chunk({}, engine)
    transcoder = CHAT.transcoder("req_1", prepared, UsageTracker(1), engine_error)
    sent = transcoder.feed(data) + transcoder.finish()
    if stream:
        events = [msgspec.json.decode(one[6:]) for one in sent.split(b"\n\n") if one.startswith(b"data: {")]
        choices = [event["choices"][0] for event in events]
        assert [one["finish_reason"] for one in choices] == [None, reason]
        made = choices[0]["delta"].get("tool_calls")
    else:
        (answered,) = msgspec.json.decode(sent)["choices"]
        assert answered["finish_reason"] == reason
        made = answered["message"].get("tool_calls")
    assert bool(made) is calls
    if made:
        assert (made[0]["id"], made[0]["function"]["arguments"]) == ("a", '{"at')
