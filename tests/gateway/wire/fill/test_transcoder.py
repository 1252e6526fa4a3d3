"""An engine's chunks become one completion's text, streamed and whole."""

from __future__ import annotations

import msgspec

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
