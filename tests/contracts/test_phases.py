"""Phases partition the wall time, whatever is ended in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.phases import Phase, PhaseClock


class Hands:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@given(st.lists(st.tuples(st.sampled_from(list(Phase)), st.floats(0, 10), st.floats(-1, 20))))
def test_phases_sum_to_the_whole(steps: list[tuple[Phase, float, float]]) -> None:
    hands = Hands()
    clock = PhaseClock(hands)
    for phase, passed_s, inner_s in steps:
        hands.now_s += passed_s
        if inner_s < 5:
            clock.end(phase)
        else:
            clock.end_split(phase, Phase.QUEUE, inner_s)
    assert sum(clock.durations_s.values()) == pytest.approx(hands.now_s - 100.0, abs=1e-6)
    assert clock.total_s == pytest.approx(hands.now_s - 100.0, abs=1e-6)
    assert all(duration_s >= 0 for duration_s in clock.durations_s.values())


def test_a_split_gives_the_inner_part_to_its_phase() -> None:
    hands = Hands()
    clock = PhaseClock(hands)
    hands.now_s += 1.0
    clock.end_split(Phase.ROUTE, Phase.QUEUE, 0.75)
    assert clock.durations_s == {Phase.QUEUE: 0.75, Phase.ROUTE: 0.25}
    assert clock.as_ms() == {"queue": 750.0, "route": 250.0}
