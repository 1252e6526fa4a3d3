"""The limiter that stands in for Valkey keeps the same promises about ids that come twice and late."""

from __future__ import annotations

import uuid

from gateway.limits.cost import Cost
from gateway.limits.levels import Limits
from gateway.limits.local import LocalLimiter
from gateway.limits.plan import Plan, Status
from tests.gateway.limits.timed import LEASE_MS, TOMB_MS, one_rule

NOW_MS = 1_700_000_000_000


def limiter_and_plan() -> tuple[LocalLimiter, Plan]:
    limits = Limits(requests_per_minute=10, tokens_per_minute=100, max_concurrency=5, tokens_per_day=1_000)
    return LocalLimiter(LEASE_MS, TOMB_MS), one_rule(limits, organization=uuid.uuid4().hex)


def test_an_id_is_reserved_once_however_often_it_comes() -> None:
    limiter, plan = limiter_and_plan()
    first = limiter.reserve(NOW_MS, plan, "e", "a", Cost(30, 20))
    again = limiter.reserve(NOW_MS, plan, "e", "a", Cost(30, 20))

    assert (first.status, again) == (Status.ADMITTED, first)
    other = limiter.reserve(NOW_MS, plan, "e", "b", Cost(30, 20))
    assert other.status is Status.ADMITTED, "twice 50 of 100 tokens"
    assert limiter.reserve(NOW_MS, plan, "e", "c", Cost(0, 1)).status is Status.REFUSED


def test_an_id_is_settled_once_however_often_it_is() -> None:
    limiter, plan = limiter_and_plan()
    limiter.reserve(NOW_MS, plan, "e", "a", Cost(30, 20))
    for _ in range(2):
        limiter.settle(NOW_MS, plan, "a", 1, Cost(10, 0))

    assert limiter.reserve(NOW_MS, plan, "e", "b", Cost(0, 91)).status is Status.REFUSED
    assert limiter.reserve(NOW_MS, plan, "e", "c", Cost(0, 90)).status is Status.ADMITTED


def test_an_id_that_comes_after_its_settlement_takes_nothing() -> None:
    limiter, plan = limiter_and_plan()
    limiter.settle(NOW_MS, plan, "late", 0, Cost())

    assert limiter.reserve(NOW_MS, plan, "e", "late", Cost(0, 50)).status is Status.SETTLED
    assert limiter.reserve(NOW_MS, plan, "e", "other", Cost(0, 100)).status is Status.ADMITTED
