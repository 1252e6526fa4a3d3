"""Describes the counters' state after one decision. Pure."""

from __future__ import annotations

import msgspec

from gateway.limits.plan import COUNTERS, MINUTE_MS, NO_LIMIT, PER_MINUTE, Plan
from gateway.wire.rate_state import CounterState


class RateState(msgspec.Struct, frozen=True):
    """The state after a decision. plan, left, now_ms: see `Decision`."""

    plan: Plan
    left: tuple[int, ...]
    now_ms: int

    def counter(self, name: str) -> CounterState | None:
        """The counter's state by the strictest rule per minute, which has the least left; None without a rule."""
        position = PER_MINUTE[name]
        strictest: tuple[int, int] | None = None
        for number, rule in enumerate(self.plan.rules):
            limit = rule.limits[position]
            if limit != NO_LIMIT:
                units = self.left[len(COUNTERS) * number + position]
                if strictest is None or units < strictest[0]:
                    strictest = units, limit
        if strictest is None:
            return None
        units, limit = strictest
        missing = limit * MINUTE_MS - units
        return CounterState(limit, max(0, units // MINUTE_MS), max(0, -(-missing // limit)))
