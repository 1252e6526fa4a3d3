"""Bounds that editors' reports meet, by a clock that the test moves."""

from __future__ import annotations

import pytest

from contracts.errors import RateLimited
from contracts.generation import Caller
from gateway.autocomplete.event_rate import EventRate


def caller(project: str, organization: str = "o") -> Caller:
    return Caller(organization, project, "k")


def taken(rate: EventRate, *callers: Caller) -> int:
    """The number of accepted events of 1,000 by each project in turn."""
    count = 0
    for _ in range(1_000):
        for each in callers:
            try:
                rate.take(each)
            except RateLimited:
                continue
            count += 1
    return count


def test_a_refusal_says_when_to_come_back_and_that_completions_go_on() -> None:
    now_s = 0.0
    rate = EventRate(2.0, lambda: now_s)
    for _ in range(20):
        rate.take(caller("p"))
    with pytest.raises(RateLimited, match=r"more than 2 events a second.*completions are served without it") as refused:
        rate.take(caller("p"))
    assert refused.value.retry_after_s == pytest.approx(0.5)
    rate.take(caller("other"))
    now_s = 0.5
    rate.take(caller("p"))


def test_projects_add_nothing_to_what_their_organization_may_report() -> None:
    """Fault: the rate was of each project, and projects are made at will."""
    rate = EventRate(2.0, lambda: 0.0)
    assert taken(rate, *(caller(f"p{number}") for number in range(12))) == 40
    with pytest.raises(RateLimited, match=r"Your organization reports more than 4 events a second"):
        rate.take(caller("p12"))
    assert taken(rate, caller("p", "another")) == 20


def test_an_event_refused_to_a_project_is_not_counted_for_its_organization() -> None:
    rate = EventRate(2.0, lambda: 0.0)
    assert taken(rate, caller("p")) == 20
    assert taken(rate, caller("q")) == 20
