"""Log probabilities are noted and taken out; everything else of an answer is what it would have been."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import EngineFailed
from gateway.wire.judged_answer import JudgedAnswer
from gateway.wire.openai.relay import Relay

TEXTS = st.text(max_size=12) | st.sampled_from(['"logprobs":{"content":[]}', '{"content":[{"logprob":-1}]}', '\\"{'])


def event(text: str, logprobs: Any, finish: str | None = None, *, spaced: bool = False) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "logprobs": logprobs, "finish_reason": finish}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    separators = None if spaced else (",", ":")
    return b"data: " + json.dumps(chunk, separators=separators, ensure_ascii=False).encode() + b"\n\n"


def answered(stream: bytes, size: int, *, judged: bool) -> tuple[bytes, float | None]:
    relay = Relay("id", "shown", 1, True)
    reader: Any = JudgedAnswer(relay) if judged else relay
    sent = b"".join(reader.feed(stream[start : start + size]) for start in range(0, len(stream), size))
    assert reader.complete
    assert (reader.events, reader.text_seen) == (relay.events, relay.text_seen)
    return sent + reader.finish(), reader.confidence if judged else None


@given(
    st.lists(st.tuples(TEXTS, st.none() | st.floats(-20, 0)), min_size=1, max_size=6),
    st.integers(1, 200),
    st.booleans(),
)
def test_the_client_reads_what_it_would_have_read(
    tokens: list[tuple[str, float | None]], size: int, spaced: bool
) -> None:
    def stream(told: bool) -> bytes:
        events = []
        for text, value in tokens:
            logprobs: Any = {"content": [{"token": text, "logprob": value, "top_logprobs": []}]} if told else None
            events.append(event(text, logprobs, spaced=spaced))
        return b"".join(events) + event("", None, "stop", spaced=spaced) + b"data: [DONE]\n\n"

    sent, confidence = answered(stream(told=True), size, judged=True)
    assert sent == answered(stream(told=False), size, judged=False)[0]
    values = [value for _, value in tokens if value is not None]
    assert confidence == (pytest.approx(math.exp(sum(values) / len(values))) if values else None)


def test_an_event_of_several_lines_stays_whole() -> None:
    logprobs = {"content": [{"token": "a", "logprob": -1.0}]}
    stream = event("a", logprobs, "stop").replace(b'"choices"', b'\ndata: "choices"')
    sent, confidence = answered(stream, len(stream), judged=True)
    assert b'"content":"a"' in sent
    assert confidence == pytest.approx(math.exp(-1.0))


def test_what_cannot_be_read_is_the_engines_failure() -> None:
    with pytest.raises(EngineFailed):
        JudgedAnswer(Relay("id", "shown", 1, False)).feed(event("a", {"content": 7}))
