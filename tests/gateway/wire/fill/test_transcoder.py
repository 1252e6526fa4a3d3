"""An engine's chunks become one completion's text, streamed and whole."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from engines.drivers.error_bodies import engine_error
from gateway.wire.fill.request import Filled
from gateway.wire.fill.stop_rules import StopRules
from gateway.wire.fill.transcoder import Answer, FillCollector, FillRelay
from gateway.wire.usage_tracker import UsageTracker

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


class Plain:
    """Frames as text, so that tests read what a client would."""

    def frame(self, text: str) -> bytes:
        return b"<" + text.encode() + b">"

    def last(self, answer: Answer) -> bytes:
        return f"[{answer.finish_reason} {answer.usage.completion_tokens}]".encode()

    def whole(self, answer: Answer) -> bytes:
        return msgspec.json.encode([answer.text, answer.finish_reason, answer.usage.completion_tokens])


def event(text: str = "", finish_reason: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": finish_reason}
    chunk = {"id": "x", "object": "text_completion", "created": 5, "choices": [choice], **more}
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


LAST = b"data: " + msgspec.json.encode({"choices": [], "usage": USAGE}) + b"\n\ndata: [DONE]\n\n"


def relay(rules: StopRules | None = None, newline: str = "\n", *, warm_up: bool = False) -> FillRelay:
    filled = Filled(rules=rules or StopRules(), suffix="", newline=newline, warm_up=warm_up)
    return FillRelay(Plain(), filled, UsageTracker(1), engine_error)


def test_a_stream_ends_only_when_it_is_told_to_finish() -> None:
    transcoder = relay()

    assert transcoder.feed(event("ab") + event("c")) == b"<abc>"
    assert not transcoder.finished
    assert transcoder.feed(event("d", "length") + LAST) == b"<d>"
    assert transcoder.complete
    assert not transcoder.satisfied
    assert transcoder.finish() == b"[length 3]"


@pytest.mark.parametrize("make", [FillRelay, FillCollector])
def test_a_note_before_the_first_event_with_a_time_hides_no_time(make: type[FillRelay | FillCollector]) -> None:
    """Azure's streams begin with a note about its filters, whose time is 0."""
    told: list[int] = []

    class Dated(Plain):
        def last(self, answer: Answer) -> bytes:
            told.append(answer.created)
            return b""

        whole = last

    note = b"data: " + msgspec.json.encode({"choices": [], "created": 0, "id": "", "object": ""}) + b"\n\n"
    transcoder = make(Dated(), Filled(rules=StopRules(), suffix=""), UsageTracker(1), engine_error)
    transcoder.feed(note + event("a") + event("", "stop") + LAST)
    transcoder.finish()
    assert told == [5]


def test_events_may_be_cut_anywhere() -> None:
    data = event("ab") + event("c\n") + event("d", "stop") + LAST
    transcoder = relay(newline="\r\n")

    sent = b"".join(transcoder.feed(data[at : at + 1]) for at in range(len(data)))
    assert (sent + transcoder.finish()).replace(b"><", b"") == b"<abc\r\nd>[stop 3]"
    assert transcoder.characters == len("abc\r\nd")


def test_a_rule_that_has_ended_the_text_is_satisfied_and_still_counts() -> None:
    transcoder = relay(StopRules(single_line=True))

    assert transcoder.feed(event("a\nb")) == b"<a>"
    assert transcoder.satisfied
    assert not transcoder.finished
    assert transcoder.feed(event("c", "abort") + LAST) == b""
    assert transcoder.finish() == b"[stop 3]"


def test_what_the_engine_aborts_by_itself_is_not_complete_and_still_counts() -> None:
    transcoder = relay()

    transcoder.feed(event("a") + event("", "abort") + LAST)
    assert (transcoder.finished, transcoder.satisfied, transcoder.complete) == (False, False, False)
    assert transcoder._usage.final
    assert transcoder._usage.total is not None
    assert transcoder._usage.total.completion_tokens == 3


def test_a_warm_up_answers_with_nothing() -> None:
    transcoder = relay(warm_up=True)

    assert transcoder.feed(event("a", "length") + LAST) == b""
    assert transcoder.finish() == b"[length 3]"
    assert transcoder.characters == 0


def test_a_whole_answer_has_all_text() -> None:
    collector = FillCollector(Plain(), Filled(rules=StopRules(), suffix=")\n"), UsageTracker(1), engine_error)

    assert collector.feed(event("f(x") + event("))", "stop") + LAST) == b""
    assert msgspec.json.decode(collector.finish()) == ["f(x)", "stop", 3]


def test_an_engines_error_is_kept_and_nothing_is_complete() -> None:
    transcoder = relay()

    transcoder.feed(b'data: {"error":{"message":"out of memory","code":500}}\n\n')
    assert transcoder.error is not None
    assert not transcoder.complete


@given(
    pieces=st.lists(st.text("ab \n)(", max_size=5), max_size=8),
    cut_at=st.integers(0, 8),
    rest=st.sampled_from(["", ")", "a b"]),
)
def test_a_cut_answer_is_what_had_come_and_the_rest_only_counts(pieces: list[str], cut_at: int, rest: str) -> None:
    """Streamed or whole, it is what the same text alone is that ended by itself."""
    filled = Filled(rules=StopRules(), suffix=f"{rest}\nafter\n")
    streamed = FillRelay(Plain(), filled, UsageTracker(1), engine_error)
    whole = FillCollector(Plain(), filled, UsageTracker(1), engine_error)
    alone = FillCollector(Plain(), filled, UsageTracker(1), engine_error)
    seen = b""
    for piece in pieces[:cut_at]:
        seen += streamed.feed(event(piece))
        whole.feed(event(piece))
        alone.feed(event(piece))
    for transcoder in (streamed, whole):
        transcoder.cut()
        assert transcoder.satisfied
        for piece in pieces[cut_at:]:
            assert transcoder.feed(event(piece)) == b""
        transcoder.feed(event("", "length") + LAST)
    alone.feed(event("", "stop") + LAST)
    text, *ending = msgspec.json.decode(whole.finish())
    assert [text, *ending] == msgspec.json.decode(alone.finish())
    seen += streamed.finish()
    assert seen.replace(b"><", b"").lstrip(b"<") == (text + ">" * bool(text)).encode() + b"[stop 3]"
    assert whole.characters == streamed.characters == len(text)


def test_an_answer_that_has_finished_cannot_be_cut() -> None:
    transcoder = relay()
    transcoder.feed(event("ab", "length"))
    transcoder.cut()
    assert not transcoder.satisfied
    transcoder.feed(LAST)
    assert transcoder.finish() == b"[length 3]"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "pieces", [["a = 1\r\n", "    b"], ["a = 1\r", "\n    b"], ["a = 1\n", "    b"], ["a = 1", "\r\n    b"]]
)
def test_an_engine_may_end_lines_as_the_file_does(newline: str, pieces: list[str]) -> None:
    transcoder = relay(newline=newline)

    sent = b"".join(transcoder.feed(event(piece)) for piece in pieces) + transcoder.feed(event(finish_reason="stop"))

    assert (sent + transcoder.finish()).replace(b"><", b"").startswith(f"<a = 1{newline}    b>".encode())


def test_a_carriage_return_at_the_end_is_the_end_of_a_line() -> None:
    transcoder = relay(newline="\r\n")

    sent = transcoder.feed(event("a\r")) + transcoder.feed(event(finish_reason="stop")) + transcoder.finish()

    assert sent.replace(b"><", b"").startswith(b"<a\r\n>")


def test_the_first_reason_ends_the_text() -> None:
    events = event("a") + event("b", "length") + event("c") + event("d", "stop") + LAST
    transcoder = relay()
    assert transcoder.feed(events) + transcoder.finish() == b"<ab>[length 3]"
    collector = FillCollector(Plain(), Filled(rules=StopRules(), suffix=""), UsageTracker(1), engine_error)
    collector.feed(events)
    assert msgspec.json.decode(collector.finish()) == ["ab", "length", 3]
