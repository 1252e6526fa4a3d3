"""What a model wrote is read out of an engine's events however they are cut, and written again as such."""

from __future__ import annotations

import pytest

from contracts.errors import EngineFailed
from gateway.wire.written import Written, last_event, text_event
from tests.fakes.chunks import DONE, ChunkWriter

WRITER = ChunkWriter(
    chat=False,
    model="fake",
    created=5,
    ids=["one"],
    prompt_tokens=7,
    cached_tokens=0,
    running_usage=True,
    logprobs=False,
    texts=("d\u00e9f ", "\n", '"x"'),
)
DATA = b"".join([*(WRITER.token(0, index) for index in range(3)), WRITER.finish(0, b'"stop"', 3), WRITER.usage(1, 3)])


@pytest.mark.parametrize("size", [1, 7, 100, len(DATA)])
def test_events_may_be_cut_anywhere(size: int) -> None:
    written = Written()
    for start in range(0, len(DATA), size):
        written.feed(DATA[start : start + size])
    written.feed(DONE)
    assert (written.text, written.finish_reason, written.created) == ('d\u00e9f \n"x"', "stop", 5)


def test_what_is_written_is_read_again() -> None:
    written = Written()
    written.feed(text_event("a", 5, "m") + text_event("\n", 5, "m"))
    assert (written.text, written.finish_reason) == ("a\n", None)
    written.feed(last_event("length", 5, "m"))
    assert (written.text, written.finish_reason, written.created) == ("a\n", "length", 5)
    written.feed(text_event("late", 5, "m") + last_event("stop", 5, "m"))
    assert (written.text, written.finish_reason) == ("a\n", "length")


def test_an_engines_error_is_no_text() -> None:
    written = Written()
    written.feed(WRITER.token(0, 0) + WRITER.error("broken", 500))
    assert (written.text, written.finish_reason) == ("d\u00e9f ", None)


@pytest.mark.parametrize("payload", [b"data: no JSON\n\n", b'data: {"choices":[{"text":1}]}\n\n', b"data: [1]\n\n"])
def test_what_cannot_be_read_is_the_engines_failure(payload: bytes) -> None:
    with pytest.raises(EngineFailed):
        Written().feed(payload)
