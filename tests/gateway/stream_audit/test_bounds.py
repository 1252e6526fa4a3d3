"""What one may ask for, and how many streams there are at once."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidField, Overloaded, RateLimited, SlipstreamError, UnknownField
from gateway.stream_audit.asked import Asked, asked_of
from gateway.stream_audit.config import StreamAuditConfig
from gateway.stream_audit.places import Places

CONFIG = StreamAuditConfig()


@given(st.integers(-5, 10**12), st.integers(-5, 10**12))
def test_whatever_is_taken_is_within_all_bounds(events: int, interval_ms: int) -> None:
    query = urlencode({"events": events, "interval_ms": interval_ms}).encode()
    fits = (
        1 <= events <= CONFIG.max_events
        and CONFIG.min_interval_ms <= interval_ms <= CONFIG.max_duration_s * 1e3
        and (events - 1) * interval_ms <= CONFIG.max_duration_s * 1e3
    )
    try:
        asked = asked_of(query, CONFIG)
    except InvalidField as error:
        assert not fits
        assert error.param in ("events", "interval_ms")
    else:
        assert fits
        assert asked == Asked(events, interval_ms)


@given(st.binary(max_size=60))
def test_any_query_is_read_or_refused(query: bytes) -> None:
    try:
        assert asked_of(query, CONFIG).duration_s <= CONFIG.max_duration_s
    except SlipstreamError as error:
        assert isinstance(error, InvalidField | UnknownField)
        assert error.param is not None


def test_a_refusal_names_parameter_value_and_range() -> None:
    with pytest.raises(InvalidField, match=r"'events': '0'; it must be a whole number from 1 to 2000"):
        asked_of(b"events=0", CONFIG)
    with pytest.raises(InvalidField, match=r"'interval_ms': '9'"):
        asked_of(b"interval_ms=9", CONFIG)
    with pytest.raises(InvalidField, match=r"2000 events 100 ms apart take 199\.9 s, and a stream may take 130 s"):
        asked_of(b"events=2000&interval_ms=100", CONFIG)
    with pytest.raises(UnknownField, match="'tokens'"):
        asked_of(b"tokens=1", CONFIG)
    assert asked_of(b"", CONFIG) == Asked(20, 100)
    assert asked_of(b"interval_ms=60000", CONFIG) == Asked(3, 60_000)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5))))
def test_places_are_as_a_naive_count_says(steps: list[tuple[bool, int]]) -> None:
    """Six keys of three organizations."""
    places = Places(StreamAuditConfig(max_streams_per_key=2, max_streams_per_organization=3, max_streams=5))
    held: list[tuple[int, ExitStack]] = []
    for takes, key in steps:
        of_key = Counter(owner for owner, _ in held)
        of_organization = Counter(owner % 3 for owner, _ in held)
        if takes:
            stack = ExitStack()
            place = places.place(f"organization {key % 3}", str(key), 3.0)
            of_one = of_key[key] >= 2 or of_organization[key % 3] >= 3
            expected = RateLimited if of_one else Overloaded if len(held) >= 5 else None
            if expected is not None:
                with pytest.raises(expected) as refused:
                    stack.enter_context(place)
                assert refused.value.retry_after_s
                if of_one:
                    whose = "This key has 2" if of_key[key] >= 2 else "Your organization has 3"
                    assert refused.value.message.startswith(f"{whose} audit streams open")
            else:
                stack.enter_context(place)
                held.append((key, stack))
        elif held:
            held.pop(key % len(held))[1].close()
        assert places.taken == len(held)
    for _, stack in held:
        stack.close()
    assert not places._of_key
    assert not places._of_organization
