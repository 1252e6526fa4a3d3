"""Rates in memory, by a clock that the test moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import rate_buckets
from gateway.limits.rate_buckets import RateBuckets


@given(
    st.floats(0.5, 200),
    st.floats(0.1, 500),
    st.lists(st.tuples(st.floats(0, 30), st.sampled_from("ab")), max_size=300),
)
def test_no_name_gets_more_than_its_burst_and_its_rate(
    per_second: float, burst: float, arrivals: list[tuple[float, str]]
) -> None:
    now_s = 1_000.0
    buckets = RateBuckets(per_second, burst, lambda: now_s)
    level = dict.fromkeys("ab", 0.0)  # the plain twin: a bucket that leaks
    for pause_s, name in arrivals:
        now_s += pause_s
        level = {each: max(0.0, filled - pause_s * per_second) for each, filled in level.items()}
        room = max(1.0, burst) - level[name] - 1
        if abs(room) < 1e-6:
            continue  # on the edge the two may round apart; neither has counted it
        assert buckets.wait_s(name) == pytest.approx(max(0.0, -room / per_second), rel=1e-3, abs=1e-5)
        if room > 0:
            buckets.take(name)
            level[name] += 1


def test_many_names_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_buckets, "MAX_KEPT", 10)
    now_s = 0.0
    buckets = RateBuckets(1.0, 10.0, lambda: now_s)
    for number in range(1_000):
        now_s += 1.5
        buckets.take(f"p{number}")
        assert len(buckets) <= 11


def test_buckets_of_which_none_is_full_are_not_searched_for_every_new_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_buckets, "MAX_KEPT", 10)
    buckets = RateBuckets(1.0, 10.0, lambda: 0.0)
    sizes = set()
    for number in range(100):
        buckets.take(f"p{number}")
        sizes.add(buckets._forget_at)
    assert (len(buckets), sizes) == (100, {10, 20, 40, 80, 160})
