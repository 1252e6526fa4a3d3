"""Answers as Anthropic's clients read them; a stream and a whole answer say the same."""

from __future__ import annotations

import asyncio
import functools
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import event_reader
from gateway.wire.chunk import UnreadableEvent, decoded
from gateway.wire.prepared import Prepared
from tests.examples import examples
from tests.gateway.wire.anthropic.asking import (
    TOOL,
    accumulated,
    chunk,
    events_of,
    prepare,
    streamed,
    transcoder,
    usage_chunk,
    where,
    whole,
)

ROLE = chunk({"role": "assistant", "content": ""})
USAGE = usage_chunk(30, 7, cached=20, written=4)


def call(index: int, arguments: str, id_: str | None = None, name: str | None = None) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"tool_calls": [{"index": index, "function": function, **({"id": id_, "type": "function"} if id_ else {})}]}


def both(prepared: Prepared, *data: bytes) -> Any:
    """The message, which is the same either way."""
    message = whole(prepared, *data)
    assert accumulated(streamed(prepared, *data)) == message
    return message


async def test_a_text_comes_with_its_counts_and_its_reason() -> None:
    message = both(await prepare(), ROLE, chunk({"content": "Hel"}), chunk({"content": "lö"}), chunk({}, "stop"), USAGE)
    assert message == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Hellö"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 6,
            "cache_creation_input_tokens": 4,
            "cache_read_input_tokens": 20,
            "output_tokens": 7,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }


async def test_the_first_event_counts_the_whole_prompt_before_the_engine_has() -> None:
    """And what the end repeats has the same sum: nothing is counted twice."""
    prepared = await prepare()
    start, *_, last, _ = events_of(streamed(prepared, ROLE, chunk({"content": "a"}, "stop"), usage_chunk(30, 7, 20)))
    first = start["message"]["usage"]
    assert (first["input_tokens"], first["cache_read_input_tokens"]) == (prepared.prompt_tokens, 0)
    assert first["input_tokens"] == prepared.prompt_tokens > 0
    told = last["usage"]
    assert told["input_tokens"] + told["cache_read_input_tokens"] + told["cache_creation_input_tokens"] == 30


async def test_an_engine_that_counts_at_once_is_repeated_at_once() -> None:
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 0,
        "total_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 9},
    }
    data = msgspec.json.decode(ROLE.removeprefix(b"data: "))
    first = b"data: " + msgspec.json.encode({**data, "usage": usage}) + b"\n\n"
    start, *_ = events_of(streamed(await prepare(), first, chunk({"content": "a"}, "stop"), USAGE))
    told = start["message"]["usage"]
    assert (told["input_tokens"], told["cache_read_input_tokens"]) == (21, 9)


async def test_thoughts_text_and_parallel_calls_are_blocks_in_their_order() -> None:
    message = both(
        await prepare(tools=[TOOL]),
        ROLE,
        chunk({"reasoning_content": "Hm"}),
        chunk({"reasoning": "m."}),
        chunk({"content": "I look."}),
        chunk(call(0, "", "call_a", "look")),
        chunk(call(0, '{"at": ')),
        chunk(call(0, '"x"}')),
        chunk(call(1, '{"at":"y"}', "call_b", "look")),
        chunk({}, "tool_calls"),
        USAGE,
    )
    assert message["content"] == [
        {"type": "thinking", "thinking": "Hmm.", "signature": "unsigned"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_a", "name": "look", "input": {"at": "x"}},
        {"type": "tool_use", "id": "call_b", "name": "look", "input": {"at": "y"}},
    ]
    assert message["stop_reason"] == "tool_use"


async def test_calls_with_one_index_or_without_ids_are_told_apart() -> None:
    calls = [chunk(call(0, '{"at":"x"}', None, "look")), chunk(call(0, '{"at":"y"}', None, "look"))]
    message = both(await prepare(tools=[TOOL]), ROLE, *calls, chunk({}, "stop"), USAGE)
    assert [block["id"] for block in message["content"]] == ["toolu_1_0", "toolu_1_1"]
    assert [block["input"] for block in message["content"]] == [{"at": "x"}, {"at": "y"}]
    assert message["stop_reason"] == "tool_use"


async def test_a_late_piece_of_an_earlier_call_reaches_that_call() -> None:
    """Blocks never overlap, and none grows after its end."""
    data = (
        ROLE,
        chunk(call(0, '{"at":', "a", "look")),
        chunk(call(1, '{"at":"y"}', "b", "look")),
        chunk(call(0, '"x"}')),
        chunk({}, "tool_calls"),
        USAGE,
    )
    message = both(await prepare(tools=[TOOL]), *data)
    assert [block["input"] for block in message["content"]] == [{"at": "x"}, {"at": "y"}]


async def test_a_name_that_comes_after_the_calls_id_is_the_calls() -> None:
    pieces = [chunk(call(0, '{"at"', "a")), chunk(call(0, ":", None, "look")), chunk(call(0, '"x"}'))]
    message = both(await prepare(tools=[TOOL]), ROLE, *pieces, chunk({}, "tool_calls"), USAGE)
    assert message["content"] == [{"type": "tool_use", "id": "a", "name": "look", "input": {"at": "x"}}]


async def test_a_call_that_is_never_named_is_passed_on() -> None:
    data = (chunk({"content": "a"}), chunk(call(0, "{}", "a")), chunk({}, "tool_calls"), USAGE)
    message = both(await prepare(tools=[TOOL]), ROLE, *data)
    assert message["content"][1:] == [{"type": "tool_use", "id": "a", "name": "", "input": {}}]


@pytest.mark.parametrize("written", ["", " \n"])
async def test_a_call_without_arguments_has_an_empty_input(written: str) -> None:
    prepared = await prepare(tools=[TOOL])
    message = both(prepared, ROLE, chunk(call(0, written, "a", "look")), chunk({}, "tool_calls"), USAGE)
    assert message["content"] == [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]


async def test_cut_arguments_are_never_taken_for_whole() -> None:
    data = (ROLE, chunk(call(0, '{"at": "/et', "a", "look")), chunk({}, "length"), USAGE)
    prepared = await prepare(tools=[TOOL])
    message = whole(prepared, *data)
    assert (message["content"][0]["input"], message["stop_reason"]) == ({}, "max_tokens")
    events = events_of(streamed(prepared, *data))
    pieces = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert pieces == []
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("arguments", ["[1", '{"at":"\\d+"}', "nothing"])
async def test_arguments_that_are_no_object_are_named_as_such(arguments: str) -> None:
    message = both(await prepare(tools=[TOOL]), ROLE, chunk(call(0, arguments, "a", "look")), chunk({}, "stop"), USAGE)
    assert message["content"][0]["input"] == {"INVALID_JSON": arguments}


async def test_text_between_the_pieces_of_a_call_follows_the_call() -> None:
    data = (ROLE, chunk(call(0, '{"at"', "a", "look")), chunk({"content": "so"}), chunk(call(0, ':"x"}')))
    message = both(await prepare(tools=[TOOL]), *data, chunk({}, "tool_calls"), USAGE)
    assert [block.get("input", block.get("text")) for block in message["content"]] == [{"at": "x"}, "so"]


@pytest.mark.parametrize(
    ("finish", "fields", "reason", "sequence"),
    [
        ("stop", {"matched_stop": "END"}, "stop_sequence", "END"),
        ("stop", {"stop_reason": "END"}, "stop_sequence", "END"),
        ("stop", {"matched_stop": 7}, "end_turn", None),
        ("stop", {"stop_reason": None}, "end_turn", None),
        ("stop", {"matched_stop": "<|eot|>"}, "end_turn", None),
        ("stop", {}, "end_turn", None),
        ("length", {}, "max_tokens", None),
        ("content_filter", {}, "refusal", None),
    ],
)
async def test_the_reason_is_the_engines_in_both_modes(
    finish: str, fields: dict[str, Any], reason: str, sequence: str | None
) -> None:
    prepared = await prepare(stop_sequences=["STOP", "END"])
    message = both(prepared, ROLE, chunk({"content": "a"}), chunk({}, finish, **fields), USAGE)
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)


async def test_a_context_that_is_full_is_named() -> None:
    """`max_tokens` was more than the prompt leaves room for."""
    prepared = await prepare(of=where(context_tokens=100), max_tokens=32_000)
    assert prepared.generation.sampling.max_tokens == 100 - prepared.prompt_tokens
    message = both(prepared, ROLE, chunk({"content": "a"}), chunk({}, "length"), USAGE)
    assert message["stop_reason"] == "model_context_window_exceeded"


async def test_omitted_thoughts_are_a_block_without_text() -> None:
    prepared = await prepare(thinking={"type": "adaptive", "display": "omitted"})
    message = both(prepared, ROLE, chunk({"reasoning_content": "secret"}), chunk({"content": "a"}, "stop"), USAGE)
    assert message["content"][0] == {"type": "thinking", "thinking": "", "signature": "unsigned"}


async def test_a_client_that_asked_for_edits_hears_that_there_were_none() -> None:
    prepared = await prepare(context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})
    data = (ROLE, chunk({"content": "a"}, "stop"), USAGE)
    assert whole(prepared, *data)["context_management"] == {"applied_edits": []}
    assert events_of(streamed(prepared, *data))[-2]["context_management"] == {"applied_edits": []}


async def test_a_refusal_is_text_with_its_reason() -> None:
    message = both(await prepare(), ROLE, chunk({"refusal": "I will not."}), chunk({}, "stop"), USAGE)
    assert (message["content"], message["stop_reason"]) == ([{"type": "text", "text": "I will not."}], "refusal")


async def test_an_empty_answer_is_a_whole_message() -> None:
    assert both(await prepare(), ROLE, chunk({}, "stop"), USAGE)["content"] == []


async def test_an_answer_that_is_cut_before_its_first_event_is_complete() -> None:
    relay = transcoder(await prepare(), stream=True)
    relay.cut()
    assert relay.satisfied
    assert accumulated(relay.finish())["stop_reason"] == "end_turn"


async def test_an_aborted_answer_is_not_complete() -> None:
    relay = transcoder(await prepare(), stream=True)
    relay.feed(ROLE + chunk({"content": "a"}) + chunk({}, "abort"))
    assert not relay.complete
    assert not relay.finished


async def test_what_came_before_an_unreadable_event_is_sent() -> None:
    relay = transcoder(await prepare(), stream=True)
    with pytest.raises(UnreadableEvent) as failure:
        relay.feed(ROLE + chunk({"content": "a"}) + b"data: {\n\n")
    assert b'"text":"a"' in failure.value.before


async def test_texts_by_the_byte_are_the_same() -> None:
    data = b"".join((ROLE, chunk({"content": "añ"}), chunk({"content": "b"}), chunk({}, "stop"), USAGE))
    prepared = await prepare()
    bytes_of_it = [data[at : at + 1] for at in range(len(data))]
    assert streamed(prepared, *bytes_of_it) == streamed(prepared, data)


Piece = tuple[str, str]


@functools.cache
def prepared_once() -> Prepared:
    return asyncio.run(prepare(tools=[TOOL]))


TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
PIECES = st.lists(st.tuples(st.sampled_from(["content", "reasoning_content", "first", "second"]), TEXTS), max_size=12)


def counting(event: bytes, tokens: int) -> bytes:
    """The event with the usage so far."""
    data = msgspec.json.decode(event.removeprefix(b"data: "))
    usage = {"prompt_tokens": 30, "completion_tokens": tokens, "total_tokens": 30 + tokens}
    return b"data: " + msgspec.json.encode({**data, "usage": usage}) + b"\n\n"


@pytest.mark.parametrize("counts", [False, True])
async def test_events_that_only_extend_a_text_are_not_decoded(counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def noted(payload: bytes) -> dict[str, Any]:
        seen.append(payload)
        return decoded(payload)

    monkeypatch.setattr(event_reader, "decoded", noted)
    words = ["plain", *(f"{at} \n\u00e9" for at in range(50))]
    texts = [chunk({kind: word}) for kind in ("reasoning_content", "content") for word in words]
    events = [counting(text, at) for at, text in enumerate(texts)] if counts else texts
    thinking, text = both(await prepare(), ROLE, *events, chunk({}, "stop"), USAGE)["content"]
    assert (thinking["thinking"], text["text"]) == ("".join(words), "".join(words))
    assert len(seen) == 2 * 5  # of a stream and of a whole answer: the role, the first of each kind, the end, the usage


@given(
    pieces=PIECES,
    cuts=st.lists(st.integers(0, 4_000), max_size=6),
    finish=st.sampled_from(["stop", "length"]),
    counts=st.booleans(),
)
@examples(nightly=400, gate=60)
def test_whatever_an_engine_writes_a_stream_and_a_whole_answer_agree(
    pieces: list[Piece], cuts: list[int], finish: str, counts: bool
) -> None:
    """And nothing of it is lost or doubled, wherever its bytes are cut. `first` and `second` are two calls."""
    prepared = prepared_once()
    events = [ROLE]
    written = {"content": "", "reasoning_content": ""}
    calls: dict[str, int] = {}
    for kind, words in pieces:
        if kind in written:
            written[kind] += words
            events.append(chunk({kind: words}))
        elif kind not in calls:
            calls[kind] = len(calls)
            events.append(chunk(call(calls[kind], msgspec.json.encode({"at": words}).decode(), kind, "look")))
    if counts:
        events = [counting(event, at) for at, event in enumerate(events)]
    data = b"".join((*events, chunk({}, finish), USAGE))
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    parts = [data[start:end] for start, end in itertools.pairwise(places)]
    message = both(prepared, *parts)
    blocks = message["content"]
    for name, field in (("content", "text"), ("reasoning_content", "thinking")):
        assert "".join(block[field] for block in blocks if block["type"] == field) == written[name]
    assert [block["id"] for block in blocks if block["type"] == "tool_use"] == list(calls)
    assert all(block.get("text", "x") and block.get("thinking", "x") for block in blocks)


async def test_a_forced_call_whose_name_comes_with_each_chunk_is_one_block() -> None:
    """TensorRT-LLM writes them so, without an id."""
    prepared = await prepare(tools=[TOOL], tool_choice={"type": "tool", "name": "look"})
    pieces = [chunk(call(0, piece, None, "look")) for piece in ('{"a', 't":', ' "x', '"}')]

    message = both(prepared, ROLE, *pieces, chunk(call(0, "", None, "look"), "stop"), USAGE)

    [block] = message["content"]
    assert (block["name"], block["input"], message["stop_reason"]) == ("look", {"at": "x"}, "tool_use")
