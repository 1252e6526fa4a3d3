"""Bytes to events, wherever they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigError
from contracts.stream_audit import EVENT_BYTES
from gateway.stream_audit.stream import FINISH, framed
from slipstream.stream_audit.client import MAX_LINE_BYTES, EventReader
from slipstream.stream_audit.measure import origin_of
from slipstream.stream_audit.not_measured import NotMeasured
from tests.slipstream.stream_audit.networks import opening

STREAM = framed(0, opening()) + b"".join(framed(number, None) for number in range(1, 12)) + FINISH


def test_every_event_is_as_long_as_a_completions() -> None:
    sizes = {len(framed(number, None)) for number in (1, 9, 10, 99_999)}
    assert sizes == {len(b"data: \n\n") + EVENT_BYTES}


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_events_are_the_same_wherever_their_bytes_are_cut(cuts: list[int]) -> None:
    reader, edges = EventReader(), [0, *sorted(cuts), len(STREAM)]
    for number in range(len(edges) - 1):
        reader.feed(STREAM[edges[number] : edges[number + 1]], float(number), ends_chunk=True)
    assert [event.number for event in reader.received] == list(range(12))
    assert reader.done
    assert reader.opening == opening()
    sent = [event.sent_us for event in reader.received]
    assert sent == sorted(sent)
    offset = 0
    for event in reader.received:
        offset += event.bytes
        arrived = next(number for number in range(len(edges) - 1) if edges[number + 1] >= offset - 1)
        assert event.arrived_s == event.chunk == arrived


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"data: {}\n\n", "cannot be read"),
        (b"data: hello\n\n", "cannot be read"),
        (framed(1, None), "event 0 is missing; 1 arrived instead"),
        (b"data: " + b"x" * MAX_LINE_BYTES, "no audit stream"),
    ],
)
def test_what_is_no_audit_stream_is_not_measured(data: bytes, why: str) -> None:
    with pytest.raises(NotMeasured, match=why):
        EventReader().feed(data, 0.0, ends_chunk=False)


def test_the_gateways_own_error_is_kept() -> None:
    reader = EventReader()
    reader.feed(framed(0, None) + b'data: {"error":{"code":"draining"}}\n\n', 0.0, ends_chunk=True)
    assert (len(reader.received), reader.done, reader.said) == (1, False, '{"error":{"code":"draining"}}')


@pytest.mark.parametrize(("url", "origin"), [
    ("http://gateway:8000", "http://gateway:8000"),
    ("https://models.example.com/v1/", "https://models.example.com"),
])  # fmt: skip
def test_urls_with_and_without_v1(url: str, origin: str) -> None:
    assert str(origin_of(url)) == origin


@pytest.mark.parametrize("url", ["gateway:8000", "ftp://gateway", "http://gateway/v1/chat/completions", "http://", "x"])
def test_what_is_no_gateways_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="give "):
        origin_of(url)
