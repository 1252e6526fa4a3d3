"""Pauses between attempts grow to a longest, begin anew after a success, and do not all end in the same moment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0, jitter=0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_success_makes_them_short_again() -> None:
    backoff = Backoff(0.5, 3.0, jitter=0)
    backoff.next_s()
    backoff.next_s()
    backoff.reset()
    assert [backoff.next_s() for _ in range(2)] == [0.5, 1.0]


@given(runs=st.lists(st.floats(min_value=0, max_value=100), max_size=30))
def test_waits_double_up_to_the_cap_and_start_small_after_a_good_run(runs: list[float]) -> None:
    backoff = Backoff(0.2, 10.0, jitter=0, stable_after_s=30.0)
    before = 0.1
    for ran_s in runs:
        delay = backoff.next_s(ran_s)
        assert delay == (0.2 if ran_s >= 30.0 else min(10.0, before * 2))
        before = delay


@pytest.mark.parametrize("jitter", [0.25, 0.5, 1.0])
def test_a_part_of_each_pause_is_left_to_chance(jitter: float) -> None:
    pauses = [Backoff(8.0, 8.0, jitter=jitter).next_s() for _ in range(500)]
    assert all(8.0 * (1 - jitter) <= pause <= 8.0 for pause in pauses)
    assert max(pauses) - min(pauses) > 8.0 * jitter / 2, "they are spread over their range"


def test_chance_does_not_stop_them_from_growing() -> None:
    backoff = Backoff(1.0, 1_000.0, jitter=0.5)
    pauses = [backoff.next_s() for _ in range(10)]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 256.0
