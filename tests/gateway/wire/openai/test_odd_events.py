"""Events that engines really write, and that are not quite OpenAI's: read the same streamed and whole."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.wire.openai.collect import Collector
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


def whole(*deltas: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    """The message of a whole answer."""
    choice = WholeChoice(0, "ours", chat=True)
    for delta in deltas:
        choice.add({"index": 0, "delta": delta})
    choice.add({"index": 0, "delta": {}, "finish_reason": finish_reason})
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
        (
            [call(0, None, "f", "{}"), call(0, None, "g", "{}")],
            [("call_ours_0_0", "f", "{}"), ("call_ours_0_1", "g", "{}")],
        ),
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
    role = event({"role": "assistant", "content": None})
    choices = streamed(role, *(event({"tool_calls": [piece]}) for piece in pieces), event({}, "length"))
    assert joined(choices) == calls
    assert joined(streamed(role, event({"tool_calls": pieces}), event({}, "length"))) == calls


def joined(choices: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """The calls of a stream, as OpenAI's SDK puts them together: by their index, with every text appended."""
    calls: dict[int, list[str]] = {}
    for choice in choices:
        for piece in choice["delta"].get("tool_calls") or ():
            known = calls.setdefault(piece["index"], ["", "", ""])
            known[0] += piece.get("id") or ""
            known[1] += piece["function"].get("name") or ""
            known[2] += piece["function"].get("arguments") or ""
    assert list(calls) == list(range(len(calls)))
    return [(id_, name, arguments) for id_, name, arguments in calls.values()]


@pytest.mark.parametrize("written", ["", " "])
@pytest.mark.parametrize(("reason", "last"), [("tool_calls", "{}"), ("stop", "{}"), ("eos", "{}"), ("length", "")])
def test_a_call_that_has_ended_without_arguments_has_an_empty_object(reason: str, last: str, written: str) -> None:
    pieces = [call(0, "a", "f", written), call(1, "b", "g", '{"x":1}'), call(2, "c", "h", written)]
    wanted = [("a", "f", written + "{}"), ("b", "g", '{"x":1}'), ("c", "h", written + last)]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    deltas += [{"tool_calls": [piece]} for piece in pieces]
    assert joined(streamed(*map(event, deltas), event({}, reason))) == wanted
    assert joined(streamed(*map(event, deltas[:-1]), event(deltas[-1], reason))) == wanted
    found = whole(*deltas, finish_reason=reason)["tool_calls"]
    assert [(each["id"], each["function"]["name"], each["function"]["arguments"]) for each in found] == wanted


@pytest.mark.parametrize(
    ("reason", "with_calls", "without"),
    [
        ("stop", "tool_calls", "stop"),
        ("tool_calls", "tool_calls", "stop"),
        ("function_call", "tool_calls", "stop"),
        ("eos_token", "tool_calls", "stop"),
        ("length", "length", "length"),
        ("model_length", "length", "length"),
        ("max_tokens", "length", "length"),
        ("content_filter", "content_filter", "content_filter"),
    ],
)
def test_a_reason_is_one_that_typed_clients_know_and_says_whether_there_are_calls(
    reason: str, with_calls: str, without: str
) -> None:
    text: dict[str, Any] = {"role": "assistant", "content": "a"}
    made = {"tool_calls": [call(0, "a", "f", "{}")]}
    for deltas, told in ([text, made], with_calls), ([text], without), ([text, {"tool_calls": []}], without):
        assert streamed(*map(event, deltas), event({}, reason))[-1]["finish_reason"] == told
        assert streamed(*map(event, deltas[:-1]), event(deltas[-1], reason))[-1]["finish_reason"] == told
        choice = WholeChoice(0, "ours", chat=True)
        for delta in deltas:
            choice.add({"index": 0, "delta": delta})
        choice.add({"index": 0, "delta": {}, "finish_reason": reason})
        assert choice.json()["finish_reason"] == told


def test_a_choice_ends_once_and_nothing_behind_its_end_is_of_it() -> None:
    more = [event({}, "tool_calls"), event({"content": "late"}), event({"tool_calls": [call(0, "a", "f")]}, "stop")]
    choices = streamed(event({"content": "a"}), event({"content": "b"}, "length"), *more)
    said = [(choice["delta"].get("content"), choice["finish_reason"]) for choice in choices]
    assert said == [("a", None), ("b", "length")]
    choice = WholeChoice(0, "ours", chat=True)
    choice.add({"index": 0, "delta": {"content": "a"}, "finish_reason": "length"})
    choice.add({"index": 0, "delta": {"content": "late"}, "finish_reason": "stop"})
    ended = choice.json()
    assert (ended["message"]["content"], ended["finish_reason"]) == ("a", "length")


@pytest.mark.parametrize("reason", ["error", "cancelled", "timeout", "insufficient_system_resource"])
def test_a_choice_that_ends_in_an_error_is_not_complete(reason: str) -> None:
    for transcoder in (Relay("ours", "m", 1, include_usage=False), Collector("ours", "m", 1)):
        sent = transcoder.feed(event({"content": "a"}) + event({"content": "b"}, reason))
        assert (transcoder.finished, transcoder.complete, b'"b"' in sent) == (False, False, False)


def test_content_beside_calls_is_null_where_it_is_empty() -> None:
    made = {"tool_calls": [call(0, "a", "f", "{}")]}

    assert whole({"role": "assistant", "content": ""}, made)["content"] is None
    assert whole({"role": "assistant", "content": "I look."}, made)["content"] == "I look."
    assert whole({"role": "assistant", "content": ""})["content"] == ""


def test_an_empty_finish_reason_is_none() -> None:
    choices = streamed(event({"content": "a"}, ""), event({"content": "b"}, ""), event({}, "stop"))

    assert [choice["finish_reason"] for choice in choices] == [None, None, "stop"]


AZURE: dict[str, Any] = {"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": []}


@pytest.mark.parametrize(("kind", "texts"), [("chat.completion.chunk", "delta"), ("text_completion", "text")])
def test_an_event_about_filters_before_the_first_choice_hides_neither_kind_nor_time(kind: str, texts: str) -> None:
    def chunk(text: str, reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, texts: {"content": text} if texts == "delta" else text, "finish_reason": reason}
        return {**AZURE, "choices": [choice], "created": 7, "id": "theirs", "model": "theirs", "object": kind}

    usage = {"prompt_tokens": 1, "completion_tokens": 3}
    note = {**AZURE, "choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]}
    chunks = AZURE, chunk("a", None), note, chunk("b", None), chunk("c", "stop"), {**AZURE, "usage": usage}
    data = b"".join(b"data: %b\n\n" % msgspec.json.encode(each) for each in chunks)
    chat = texts == "delta"
    relay = Relay("ours", "m", 1, include_usage=True, chat=chat)
    whole_answer = Collector("ours", "m", 1, chat=chat)
    whole_answer.feed(data)

    sent = relay.feed(data) + relay.finish()
    events = [msgspec.json.decode(line[6:]) for line in sent.split(b"\n\n")[:-2]]
    answer = msgspec.json.decode(whole_answer.finish())

    assert {(each["object"], each["created"], each["id"], each["model"]) for each in events} == {(kind, 7, "ours", "m")}
    assert all(texts in choice for each in events for choice in each["choices"])
    assert (answer["object"], answer["created"]) == (kind.removesuffix(".chunk"), 7)
    assert (answer["choices"][0]["message"]["content"] if chat else answer["choices"][0]["text"]) == "abc"


@pytest.mark.parametrize("nothing", [{}, {"delta": None}], ids=["left out", "null"])
def test_a_note_about_filters_has_a_delta_for_clients_that_read_it_in_every_event(nothing: dict[str, Any]) -> None:
    note = {**AZURE, "choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}, **nothing}]}
    noted = b"data: " + msgspec.json.encode(note) + b"\n\n"

    choices = streamed(
        event({"content": "a"}), event({"content": "b"}), noted, event({"content": "c"}), event({}, "stop")
    )

    assert [choice["delta"].get("content") for choice in choices] == ["a", "b", None, "c", None]


def test_a_forced_call_whose_name_comes_with_each_chunk_is_one_call() -> None:
    """TensorRT-LLM writes them so, without an id."""
    pieces = ['{"x', '": [', *('{"', 'y": "}', '{"', "}", ", ") * 30, "{}", "]}", "\n", ""]
    events = [event({"role": "assistant"}), *(event({"tool_calls": [call(0, None, "f", each)]}) for each in pieces)]
    ending = event({"tool_calls": [call(0, None, "f", "")]}, "stop")
    relay = Relay("chatcmpl-1", "m", 1, include_usage=False, forced_call=True)
    collector = Collector("chatcmpl-1", "m", 1, forced_call=True)
    sent = b"".join(relay.feed(each) for each in [*events, ending]) + relay.finish()
    collector.feed(b"".join([*events, ending]))

    found = [msgspec.json.decode(line[6:])["choices"][0] for line in sent.split(b"\n\n")[:-2]]
    answer = msgspec.json.decode(collector.finish())["choices"][0]

    assert joined(found) == [("call_1_0_0", "f", "".join(pieces))]
    [made] = answer["message"]["tool_calls"]
    assert (made["id"], made["function"]) == ("call_1_0_0", {"name": "f", "arguments": "".join(pieces)})
    assert found[-1]["finish_reason"] == answer["finish_reason"] == "stop"


@pytest.mark.parametrize("together", [True, False])
def test_several_whole_calls_of_a_forced_function_stay_apart(*, together: bool) -> None:
    """An engine may write them without ids and with one index; one call of `{…}{…}` is no call."""
    first, second = '{"a": {"x": "}{"}}', '{"b": 1}'
    one, other = (call(0, None, "f", arguments) for arguments in (first, second))
    deltas = [[one, other]] if together else [[one], [other]]
    events = [*(event({"tool_calls": each}) for each in deltas), event({}, "stop")]
    relay = Relay("chatcmpl-1", "m", 1, include_usage=False, forced_call=True)
    collector = Collector("chatcmpl-1", "m", 1, forced_call=True)
    sent = relay.feed(b"".join(events)) + relay.finish()
    collector.feed(b"".join(events))

    found = [msgspec.json.decode(line[6:])["choices"][0] for line in sent.split(b"\n\n")[:-2]]
    made = msgspec.json.decode(collector.finish())["choices"][0]["message"]["tool_calls"]

    assert joined(found) == [("call_1_0_0", "f", first), ("call_1_0_1", "f", second)]
    assert [each["function"]["arguments"] for each in made] == [first, second]


@pytest.mark.parametrize("type_", [{}, {"type": None}, {"type": "function"}], ids=["left out", "null", "given"])
def test_each_call_has_a_type_as_in_a_whole_answer(type_: dict[str, Any]) -> None:
    """Mistral's API leaves it out; a typed client then throws, and OpenAI's SDK has no events for the call."""
    first = {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}, **type_}
    more = {"index": 0, "function": {"arguments": "{}"}}
    opening = event({"role": "assistant", "content": ""})
    for before in ([opening], []):
        choices = streamed(*before, event({"tool_calls": [first]}), event({"tool_calls": [more]}), event({}, "stop"))
        begun, *_ = (piece for choice in choices for piece in choice["delta"].get("tool_calls") or ())
        assert begun == {**first, "type": "function"}
