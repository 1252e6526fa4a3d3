"""Events out of bytes: cut anywhere, ended in either way, bounded, at a price in proportion to their length."""

from __future__ import annotations

import itertools
from codecs import BOM_UTF8
from typing import Any, SupportsIndex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contracts.errors import EngineFailed
from engines.http.event_splitter import MAX_EVENT_BYTES, EventSplitter

PIECE = b"a" * 1_000
ANYTHING = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"data:", b"data: ", b": ping", b"event: x", b"{}", b" "]))


def payloads_of(stream: bytes) -> list[bytes]:
    """The plain reference: what a stream says that is there as a whole."""
    found = []
    for event in stream.replace(b"\r\n", b"\n").split(b"\n\n")[:-1]:
        lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
        payload = b"\n".join(lines)
        if payload or event == b"data: ":
            found.append(payload)
    return found


def fed(pieces: list[bytes]) -> list[bytes]:
    splitter = EventSplitter()
    return [payload for piece in pieces for payload in splitter.feed(piece)]


@given(stream=ANYTHING.map(b"".join), cuts=st.lists(st.integers(0, 60), max_size=8))
@example(stream=b"data: a\r\r\n\r\n", cuts=[9, 10])
@example(stream=b"data: a\n\r\n\n", cuts=[8, 9])
@example(stream=b"data: a\n\n\r\n", cuts=[10])
def test_a_stream_says_the_same_however_it_is_cut(stream: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
    for cut in (pieces, [stream[at : at + 1] for at in range(len(stream))], [stream]):
        found = fed(cut)
        assert found == payloads_of(stream)
        assert {type(payload) for payload in found} <= {bytes}


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_an_event_is_told_with_the_byte_that_ends_it(end: bytes) -> None:
    splitter = EventSplitter()
    for byte in b"data: " + PIECE + end[:-1]:
        assert list(splitter.feed(bytes([byte]))) == []
    assert list(splitter.feed(end[-1:])) == [PIECE]


def test_an_event_may_be_as_long_as_its_bound_and_no_longer() -> None:
    splitter = EventSplitter()
    assert list(splitter.feed(b"data: " + b"a" * (MAX_EVENT_BYTES - 6))) == []
    assert [len(payload) for payload in splitter.feed(b"\n\ndata: b")] == [MAX_EVENT_BYTES - 6]
    assert list(splitter.feed(b"b" * (MAX_EVENT_BYTES - 7))) == []
    with pytest.raises(EngineFailed, match="without an end"):
        list(splitter.feed(b"b"))


class Counted(bytearray):
    """Counts its bytes that were looked at, and those that were copied into it or out of it."""

    looked_at = 0
    copied = 0

    def find(self, what: Any, start: Any = 0, end: SupportsIndex | None = None) -> int:
        self.looked_at += len(self) - start
        return super().find(what, start, end)

    def __iadd__(self, more: Any) -> Counted:
        self.copied += len(more)
        return super().__iadd__(more)

    def __add__(self, more: Any) -> bytearray:
        self.copied += len(self) + len(more)
        return super().__add__(more)

    def __bytes__(self) -> bytes:
        self.copied += len(self)
        return bytes(memoryview(self))


def test_a_long_event_in_many_pieces_is_looked_at_and_copied_once() -> None:
    """It was joined anew with each: four megabytes of an event held the loop for twelve seconds."""
    splitter = EventSplitter()
    assert list(splitter.feed(b"data: first\n\n")) == [b"first"]
    splitter._rest = counted = Counted(b"data: ")
    pieces = 1_000
    for _ in range(pieces):
        assert list(splitter.feed(PIECE)) == []
    assert splitter._rest is counted
    length = pieces * len(PIECE)
    assert counted.looked_at <= length + pieces
    assert list(splitter.feed(b"\n\n")) == [PIECE * pieces]
    assert counted.copied <= 2 * (length + len(b"data: \n\n"))


@pytest.mark.parametrize("stream", [b"data: a\n\ndata: b\n\n", b"", b"\xef\xbb", b"data: \xef\xbb\xbf\n\n"])
def test_one_byte_order_mark_is_skipped_wherever_it_is_cut(stream: bytes) -> None:
    def payloads(data: bytes, *cuts: int) -> list[bytes]:
        splitter, ends = EventSplitter(), [*cuts, len(data)]
        pieces = [data[start:end] for start, end in zip([0, *cuts], ends, strict=True)]
        return [payload for piece in pieces for payload in splitter.feed(piece)]

    marked = BOM_UTF8 + stream
    for first in range(len(marked)):
        for second in range(first, len(marked)):
            assert payloads(marked, first, second) == payloads(stream)
