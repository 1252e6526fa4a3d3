"""Lists all counters of a plan at the moment of a refusal, for the request's record."""

from __future__ import annotations

import msgspec

from gateway.limits.plan import COUNTERS, NO_LIMIT, used_of
from gateway.limits.rate_state import RateState


class CounterSnapshot(msgspec.Struct, frozen=True):
    """One counter of one rule; money in millionths. remaining: left of the limit. used: used, or held by running
    requests; more than the limit if the limit was passed or lowered."""

    level: str
    subject_id: str
    tier: str | None
    counter: str
    limit: int
    remaining: int
    used: int


def counters_of(state: RateState) -> list[CounterSnapshot]:
    """All counters that limit the request, the organization's first."""
    found = []
    for number, rule in enumerate(state.plan.rules):
        for position, counter in enumerate(COUNTERS):
            limit, left = rule.limits[position], state.left[len(COUNTERS) * number + position]
            if limit == NO_LIMIT:
                continue
            tier = rule.tier.value if rule.tier is not None else None
            used = used_of(position, limit, left)
            counts = limit, max(0, limit - used), used
            found.append(CounterSnapshot(rule.level.value, rule.subject_id, tier, str(counter), *counts))
    return found
