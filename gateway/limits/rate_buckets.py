"""Limits rates in one process's memory with a generic cell rate algorithm, for requests that are limited but not
metered. Pure except for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

MAX_KEPT = 10_000
"""Number of buckets from which full ones are forgotten, which changes no result."""


class RateBuckets:
    """A bucket for each name: `per_second` over time, and `burst` at once after silence. A full bucket has room for any
    amount."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._each_s = 1 / per_second
        self._burst = burst
        self._clock = clock
        self._full_at_s: dict[Hashable, float] = {}
        """Time at which each bucket is full again if no event comes, by name."""
        self._forget_at = MAX_KEPT
        """Number of buckets at which full ones are forgotten next."""

    def __len__(self) -> int:
        return len(self._full_at_s)

    def wait_s(self, name: Hashable, amount: float = 1.0) -> float:
        """Seconds until this amount fits; 0 if it fits now."""
        full_at_s = self._full_at_s.get(name)
        if full_at_s is None:
            return 0.0
        wait_s = max(full_at_s - self._clock(), 0.0) + (amount - max(self._burst, amount)) * self._each_s
        return wait_s if wait_s > 1e-9 else 0.0

    def take(self, name: Hashable, amount: float = 1.0) -> None:
        """Count an amount, whether or not it fits; a negative one is a refund."""
        now_s = self._clock()
        if name not in self._full_at_s and len(self._full_at_s) >= self._forget_at:
            self._full_at_s = {known: at_s for known, at_s in self._full_at_s.items() if at_s > now_s}
            # if few are full, the next search waits, or each new name would cost one
            self._forget_at = max(MAX_KEPT, 2 * len(self._full_at_s))
        self._full_at_s[name] = max(self._full_at_s.get(name, now_s), now_s) + amount * self._each_s
