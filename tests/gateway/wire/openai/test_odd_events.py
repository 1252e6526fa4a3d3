"""Events that engines really write, and that are not quite OpenAI's: read the same streamed and whole."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.wire.openai.relay import Relay
from gateway.wire.openai.whole_choice import WholeChoice


def event(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {"id": "theirs", "object": "chat.completion.chunk", "created": 1, "model": "theirs", "choices": [choice]}
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def streamed(*events: bytes) -> list[dict[str, Any]]:
    """The choices that a client reads, one for each event."""
    relay = Relay("ours", "m", 1, include_usage=False)
    sent = b"".join([*(relay.feed(each) for each in events), relay.finish()])
    payloads = [line[6:] for line in sent.split(b"\n\n") if line and line != b"data: [DONE]"]
    choices: list[dict[str, Any]] = [msgspec.json.decode(payload)["choices"][0] for payload in payloads]
    return choices


def whole(*deltas: dict[str, Any]) -> dict[str, Any]:
    """The message of a whole answer."""
    choice = WholeChoice(0, chat=True)
    for delta in deltas:
        choice.add({"index": 0, "delta": delta})
    message: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(choice.json()))["message"]
    return message


@pytest.mark.parametrize(
    ("delta", "thought"),
    [
        ({"reasoning": "r"}, "r"),
        ({"content": None, "reasoning": "r"}, "r"),
        ({"role": "assistant", "content": None, "reasoning": "r"}, "r"),
        ({"reasoning": "r", "reasoning_content": "r"}, "r"),
        ({"reasoning_content": "r", "reasoning": "r"}, "r"),
        ({"reasoning": "r", "reasoning_content": None}, "r"),
        ({"reasoning_content": None, "reasoning": "r"}, "r"),
        ({"reasoning_content": "r", "reasoning": None}, "r"),
    ],
)
def test_a_thought_has_one_name_and_comes_once_wherever_it_stands(delta: dict[str, Any], thought: str) -> None:
    first, second = event({"role": "assistant", "content": ""}), event({"content": "a"})
    for events in ([event(delta), second], [first, event(delta), second], [first, second, event(delta)]):
        deltas = [choice["delta"] for choice in streamed(*events)]
        assert not [each for each in deltas if "reasoning" in each]
        assert "".join(each.get("reasoning_content") or "" for each in deltas) == thought
    assert whole({"role": "assistant", "content": ""}, delta)["reasoning_content"] == thought


def test_text_that_reads_like_a_thought_is_left_alone() -> None:
    text = '{"reasoning": "no", "reasoning":"no"}'

    deltas = [choice["delta"] for choice in streamed(event({"content": "a"}), event({"content": text}))]

    assert deltas[1] == {"content": text}


def call(index: int | None, id_: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"index": index, "id": id_, "type": "function", "function": function}


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        (
            [call(0, "a", "f", "{}"), call(0, "b", "g", '{"x":'), call(0, None, None, "1}")],
            [("a", "f", "{}"), ("b", "g", '{"x":1}')],
        ),
        ([call(1, "a", "f", "{}")], [("a", "f", "{}")]),
        ([call(0, "a", "f"), call(2, "b", "g"), call(0, None, None, "{}")], [("a", "f", "{}"), ("b", "g", "")]),
        ([call(None, "a", "f", "{}"), call(None, "b", "f", "{}")], [("a", "f", "{}"), ("b", "f", "{}")]),
        ([call(0, None, "f", "{}"), call(0, None, "g", "{}")], [("", "f", "{}"), ("", "g", "{}")]),
        ([call(0, "a", "f", '{"x"'), call(0, "a", "f", ":1}")], [("a", "f", '{"x":1}')]),
    ],
    ids=["ids at one index", "a gap", "in turns", "no index", "no ids", "named again"],
)
def test_calls_are_told_apart_by_id_and_name_and_gaps_are_closed(
    pieces: list[dict[str, Any]], calls: list[tuple[str, str, str]]
) -> None:
    message = whole(*({"tool_calls": [piece]} for piece in pieces))

    found = message["tool_calls"]
    assert [(each["id"], each["function"]["name"], each["function"]["arguments"]) for each in found] == calls


def test_content_beside_calls_is_null_where_it_is_empty() -> None:
    made = {"tool_calls": [call(0, "a", "f", "{}")]}

    assert whole({"role": "assistant", "content": ""}, made)["content"] is None
    assert whole({"role": "assistant", "content": "I look."}, made)["content"] == "I look."
    assert whole({"role": "assistant", "content": ""})["content"] == ""


def test_an_empty_finish_reason_is_none() -> None:
    choices = streamed(event({"content": "a"}, ""), event({"content": "b"}, ""), event({}, "stop"))

    assert [choice["finish_reason"] for choice in choices] == [None, None, "stop"]
