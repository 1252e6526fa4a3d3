"""A stream whose usual events are recognized by their bytes gives what it gives when each is decoded."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import EngineFailed
from engines.http.event_splitter import EventSplitter
from gateway.wire.chunk import Event, decode_event
from gateway.wire.openai import collect as collecting
from gateway.wire.openai import relay as relaying
from gateway.wire.openai.collect import Collector
from gateway.wire.openai.relay import Relay
from gateway.wire.usage_tracker import UsageTracker
from tests.examples import examples

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def event(choice: dict[str, Any], **more: Any) -> bytes:
    one = {"id": "theirs", "object": "chat.completion.chunk", "created": 7, "model": "theirs", "choices": [choice]}
    return b"data: " + msgspec.json.encode(one | more) + b"\n\n"


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """An engine's reads: texts, thoughts, members that come and go, an end, and events after it."""
    events = [event({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})]
    counted = draw(st.booleans())
    for number in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from(["content"] * 6 + ["reasoning_content", "refusal"]))
        delta: dict[str, Any] = {name: draw(TEXTS)}
        if draw(st.integers(0, 6)) == 0:
            delta["tool_calls"] = [{"index": 0, "id": "c", "type": "function", "function": {"name": "f"}}]
        more: dict[str, Any] = draw(
            st.sampled_from([{}] * 6 + [{"usage": None}, {"usage": {"prompt_tokens": 3, "completion_tokens": 9}}])
        )
        if counted:
            details = {"cached_tokens": 1}
            more = {"usage": {"prompt_tokens": 3, "completion_tokens": number, "prompt_tokens_details": details}}
            more |= draw(st.sampled_from([{}] * 6 + [{"metadata": number % 2}]))
        events.append(event({"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}, **more))
    usual = event({"index": 0, "delta": {"content": "after"}, "logprobs": None, "finish_reason": None})
    events += draw(st.sampled_from([[], [usual, usual]]))
    if draw(st.booleans()):
        events.append(event({"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}))
        events += draw(st.sampled_from([[], [usual, usual]]))
    events.append(b"data: [DONE]\n\n")
    stream = b"".join(events)
    cuts = sorted(draw(st.sets(st.integers(1, len(stream) - 1), max_size=12)))
    return [stream[start:end] for start, end in itertools.pairwise([0, *cuts, len(stream)])]


def outcome(kind: type[Relay] | type[Collector], reads: list[bytes], **options: Any) -> tuple[object, ...]:
    usage = UsageTracker(1)
    made = kind("ours", "model", 1, seen=usage, **options)
    sent = b"".join([made.feed(read) for read in reads])
    return (
        sent,
        made.finish(),
        made.characters,
        made.events,
        made.text_seen,
        made.finished,
        usage.total,
        usage.final,
        usage.delivered.events,
        {index: "".join(texts) for index, texts in usage.delivered._texts.items()},
    )


@pytest.mark.parametrize("include_usage", [False, True])
@examples(nightly=400, gate=40)
@given(reads=streams(), counts=st.booleans())
def test_a_stream(reads: list[bytes], counts: bool, include_usage: bool) -> None:
    options: dict[str, Any] = {"include_usage": include_usage, "counts_characters": counts}
    fast = outcome(Relay, reads, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relaying, "LESSONS", 0)
        assert outcome(Relay, reads, **options) == fast


@examples(nightly=400, gate=40)
@given(reads=streams())
def test_a_whole_answer(reads: list[bytes]) -> None:
    fast = outcome(Collector, reads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collecting, "LESSONS", 0)
        assert outcome(Collector, reads) == fast


@pytest.mark.parametrize("counted", [False, True])
def test_usual_events_are_not_decoded(counted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def noted(payload: bytes) -> Event:
        decoded.append(payload)
        return decode_event(payload)

    monkeypatch.setattr(relaying, "decode_event", noted)
    made = Relay("ours", "model", 1, include_usage=False)
    sent = b""
    for n in range(100):
        usage: Any = {"usage": {"prompt_tokens": 1, "completion_tokens": n}} if counted else {}
        sent += made.feed(event({"index": 0, "delta": {"content": f"w{n}"}, "finish_reason": None}, **usage))
    assert (sent.count(b'"id":"ours"'), made.events, sent.count(b"usage")) == (100, 100, 0)
    assert (made.usage.completion_tokens if made.usage else None) == (99 if counted else None)
    assert len(decoded) < 3


def test_a_usage_that_is_no_json_is_not_passed_over() -> None:
    made = Relay("ours", "model", 1, include_usage=False)
    for n in range(3):
        usage = {"prompt_tokens": 1, "completion_tokens": n}
        made.feed(event({"index": 0, "delta": {"content": "w"}, "finish_reason": None}, usage=usage))
    bad = event({"index": 0, "delta": {"content": "w"}, "finish_reason": None}, usage={"prompt_tokens": 1})
    with pytest.raises(EngineFailed):
        made.feed(bad.replace(b'"prompt_tokens":1', b'"prompt_tokens":x'))


def spaced(choice: str, **more: str) -> bytes:
    """An event with blanks before some values, as few engines write them."""
    members = "".join(f',"{name}": {value}' for name, value in more.items())
    return f'data: {{"id":"theirs","model":"theirs","choices":[{choice}]{members}}}\n\n'.encode()


def test_log_probabilities_behind_a_blank_are_collected() -> None:
    choice = '{"index":0,"text":"a","logprobs": {"tokens":["a"],"token_logprobs":[-0.5]},"finish_reason":null}'
    made = Collector("ours", "model", 1, chat=False)
    made.feed(spaced(choice) * 9)
    assert msgspec.json.decode(made.finish())["choices"][0]["logprobs"]["tokens"] == ["a"] * 9


def test_usage_behind_a_blank_is_counted_and_kept_from_the_client() -> None:
    choice = '{"index":0,"delta":{"content":"a"},"finish_reason":null}'
    used = '{"prompt_tokens":3,"completion_tokens":9}'
    for event_ in (
        spaced(choice, usage=used),
        f'data: {{"usage":{used},"id":"theirs","model":"theirs","choices":[{choice}]}}\n\n'.encode(),
    ):
        collected, tracker = UsageTracker(1), UsageTracker(1)
        Collector("ours", "model", 1, seen=collected).feed(event_ * 9)
        sent = Relay("ours", "model", 1, include_usage=False, seen=tracker).feed(event_ * 9)
        for usage in (collected, tracker):
            assert usage.total is not None
            assert (usage.total.completion_tokens, usage.delivered.events) == (9, 0)
        assert b"usage" not in sent


def test_an_event_of_several_lines_is_not_the_usual_one() -> None:
    """Its bytes on their way are others than those of its payload."""
    choice = '{"index":0,"delta":{"content":"a"},"finish_reason":null}'
    data = spaced(choice).replace(b'"model"', b'\ndata: "model"')
    made = Collector("ours", "model", 1)
    made.feed(data * 9)
    assert made.text == "a" * 9
    assert made._splitter.repeated is None
    sent = Relay("ours", "model", 1, include_usage=False).feed(data * 9)
    assert len(list(EventSplitter().feed(sent))) == 9
    assert all(line.startswith(b"data: ") for line in sent.split(b"\n") if line)
