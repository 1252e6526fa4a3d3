"""Bounds that a project's editors meet, by a clock that the test moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import RateLimited
from gateway.autocomplete import event_rate
from gateway.autocomplete.event_rate import BURST_S, EventRate


@given(
    st.floats(0.5, 200),
    st.lists(st.tuples(st.floats(0, 30), st.sampled_from("ab")), max_size=300),
)
def test_no_project_gets_more_than_its_burst_and_its_rate(per_second: float, arrivals: list[tuple[float, str]]) -> None:
    now_s = 1_000.0
    rate = EventRate(per_second, lambda: now_s)
    level = dict.fromkeys("ab", 0.0)  # the plain twin: a bucket that leaks
    for pause_s, project in arrivals:
        now_s += pause_s
        level = {each: max(0.0, filled - pause_s * per_second) for each, filled in level.items()}
        room = max(1.0, per_second * BURST_S) - level[project] - 1
        if abs(room) < 1e-6:
            continue  # on the edge the two may round apart; neither has counted it
        try:
            rate.take(project)
        except RateLimited as error:
            assert room < 0
            assert error.retry_after_s == pytest.approx(-room / per_second, rel=1e-3, abs=1e-5)
        else:
            assert room > 0
            level[project] += 1


def test_a_refusal_says_when_to_come_back_and_that_completions_go_on() -> None:
    now_s = 0.0
    rate = EventRate(2.0, lambda: now_s)
    for _ in range(20):
        rate.take("p")
    with pytest.raises(RateLimited, match=r"more than 2 events a second.*completions are served without it") as refused:
        rate.take("p")
    assert refused.value.retry_after_s == pytest.approx(0.5)
    rate.take("other")
    now_s = 0.5
    rate.take("p")


def test_many_projects_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_rate, "MOST_PROJECTS", 10)
    now_s = 0.0
    rate = EventRate(1.0, lambda: now_s)
    for number in range(1_000):
        now_s += 1.5
        rate.take(f"p{number}")
        assert len(rate._full_at_s) <= 11
