"""Two answers to one request, compared by numbers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import EngineFailed
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, Tier
from gateway.shadow.answer import Answer, AnswerReader, ToolCall
from gateway.shadow.comparison import Served, asks_for_json, compare, first_difference

SHORT = st.text(alphabet="ab", max_size=40)


def read(*events: dict[str, Any] | str, text: str | None = None) -> Answer:
    reader = AnswerReader()
    for event in events:
        payload = event.encode() if isinstance(event, str) else msgspec.json.encode(event)
        reader.feed(b"data: " + payload + b"\n\n")
    return reader.answer(text)


def chat(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@given(SHORT, SHORT, SHORT)
def test_the_first_difference_is_where_a_naive_walk_finds_it(start: str, one: str, other: str) -> None:
    first, second = start + one, start + other
    pairs = enumerate(zip(first, second, strict=False))
    common = next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))
    assert first_difference(first, second) == (None if first == second else common)


def test_an_answer_is_read_from_events_however_they_are_cut() -> None:
    events = (
        chat(role="assistant"),
        chat(content="Hel"),
        chat(content="lo"),
        chat(tool_calls=[{"index": 0, "function": {"name": "find", "arguments": '{"a"'}}]),
        chat(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}]),
        chat("tool_calls"),
        "[DONE]",
    )
    whole = read(*events)
    assert whole == Answer("Hello", "", (ToolCall("find", '{"a":1}'),), "tool_calls")
    stream = b"".join(
        b"data: " + (one.encode() if isinstance(one, str) else msgspec.json.encode(one)) + b"\n\n" for one in events
    )
    reader = AnswerReader()
    for at in range(len(stream)):
        reader.feed(stream[at : at + 1])
    assert reader.answer() == whole
    assert read({"choices": [{"text": "x"}, {"text": "y", "finish_reason": "stop"}]}) == Answer(
        "xy", finish_reason="stop"
    )
    assert read(chat(content="Hello, and more"), text="Hello").text == "Hello"


@pytest.mark.parametrize("garbage", ["{", "[1]", '{"choices":[1]}', '{"choices":[{"delta":[1]}]}', '{"choices":3}'])
def test_garbage_is_an_engines_failure(garbage: str) -> None:
    with pytest.raises(EngineFailed):
        read(garbage)


def test_a_pair_says_what_differs() -> None:
    one = Served(Answer("I'm sorry, no.", finish_reason="stop"), 10.0, 50.0, 3, 5)
    other = Served(Answer("I'd say yes.", finish_reason="length"), 12.0, None, 0, 4)
    found = compare(one, other, json_asked=False)
    assert (found.same_text, found.first_difference) == (False, 2)
    assert (found.baseline_characters, found.candidate_characters) == (14, 12)
    assert (found.baseline_finish, found.candidate_finish) == ("stop", "length")
    assert (found.baseline_refused, found.candidate_refused) == (True, False)
    assert (found.baseline_json_valid, found.candidate_json_valid, found.same_tool_calls) == (None, None, None)
    assert (found.baseline_ttft_ms, found.candidate_tokens_per_s) == (10.0, None)
    assert not any(
        isinstance(value, str) and value not in ("stop", "length") for value in msgspec.structs.astuple(found)
    )


@pytest.mark.parametrize(("text", "valid"), [('{"a":1}', True), ("[1]", False), ("{", False), ("", False)])
def test_json_is_looked_at_where_it_was_asked_for(text: str, valid: bool) -> None:
    found = compare(Served(Answer('{"a":2}')), Served(Answer(text)), json_asked=True)
    assert (found.baseline_json_valid, found.candidate_json_valid) == (True, valid)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((), (), None),
        ((("f", "{}"),), (), False),
        ((("f", '{"a":1,"b":2}'),), (("f", '{ "b": 2, "a": 1 }'),), True),
        ((("f", '{"a":1}'),), (("f", '{"a":2}'),), False),
        ((("f", "{}"),), (("g", "{}"),), False),
        ((("f", "{"),), (("f", "["),), False),
    ],
)
def test_tool_calls_are_equal_where_they_mean_the_same(one: Any, other: Any, same: bool | None) -> None:
    sides = [Served(Answer("", tool_calls=tuple(ToolCall(*call) for call in calls))) for calls in (one, other)]
    assert compare(*sides, json_asked=False).same_tool_calls is same


def test_who_asks_for_json() -> None:
    def asked(response_format: dict[str, Any] | None) -> bool:
        prompt = ChatPrompt((), response_format=response_format)
        return asks_for_json(Generation("r", Caller("o", "p", "k"), Tier.CHAT, "m", prompt, Sampling(1)))

    assert [asked(None), asked({"type": "text"}), asked({"type": "json_object"}), asked({"type": "json_schema"})] == [
        False, False, True, True,
    ]  # fmt: skip
