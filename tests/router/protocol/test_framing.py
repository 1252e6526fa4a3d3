"""Frames survive every way a line may cut and join them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.proto import router_pb2 as pb
from router.protocol.framing import FrameReader, FrameTooLongError, framed

LIMIT_BYTES = 4_096


@given(st.lists(st.binary(max_size=300), max_size=20), st.lists(st.integers(1, 700), max_size=60))
def test_every_cut_gives_the_same_payloads(documents: list[bytes], cuts: list[int]) -> None:
    messages = [pb.DesiredStateVersion(document=document) for document in documents]
    line = b"".join(framed(message) for message in messages)
    reader = FrameReader(LIMIT_BYTES)
    arrived: list[bytes] = []
    for cut in cuts:
        arrived += reader.feed(line[:cut])
        line = line[cut:]
    arrived += reader.feed(line)
    assert [pb.DesiredStateVersion.FromString(payload) for payload in arrived] == messages


def test_a_frame_beyond_the_limit_is_refused_before_it_is_held() -> None:
    reader = FrameReader(LIMIT_BYTES)
    assert list(reader.feed((LIMIT_BYTES).to_bytes(4, "big"))) == []
    with pytest.raises(FrameTooLongError, match="longest allowed is 4,096"):
        list(FrameReader(LIMIT_BYTES).feed(b"GET / HTTP/1.1"))


def test_the_limit_may_grow_between_two_frames_of_one_read() -> None:
    small, large = pb.Opening(token="t"), pb.DesiredStateVersion(document=b"x" * (LIMIT_BYTES + 1))
    reader = FrameReader(LIMIT_BYTES)
    arrived = reader.feed(framed(small) + framed(large))
    assert pb.Opening.FromString(next(arrived)) == small
    reader.limit_bytes *= 2
    assert pb.DesiredStateVersion.FromString(next(arrived)) == large
