"""The length of responses, by tenant and model: the p90 that admission reserves room for."""

from __future__ import annotations

import math
from collections import OrderedDict

BUCKETS = 40
GROWTH = 1.35
"""Upper edge of a bucket relative to the one before it; the last one ends beyond 100,000 tokens."""
FORGET_AT = 400
"""Counts are halved at this many, so that the last few hundred responses decide."""
ENOUGH = 20
TENANTS_LIMIT = 4_096
_LOG = math.log(GROWTH)


class Lengths:
    """A histogram on a logarithmic scale."""

    __slots__ = ("_counts", "_p90", "total")

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS
        self.total = 0
        self._p90 = 0

    def add(self, tokens: int) -> None:
        """Count the length of one response, in tokens."""
        self._counts[min(int(math.log(tokens) / _LOG) if tokens > 1 else 0, BUCKETS - 1)] += 1
        self.total += 1
        if self.total >= FORGET_AT:
            self._counts = [count // 2 for count in self._counts]
            self.total = sum(self._counts)
        if self.total % 8 == 0 or self.total <= ENOUGH:
            self._p90 = self._quantile(0.9)

    @property
    def p90(self) -> int:
        """Nine responses of ten are at most this long; rounded up to a bucket's edge."""
        return self._p90

    def _quantile(self, share: float) -> int:
        left = share * self.total
        for bucket, count in enumerate(self._counts):
            left -= count
            if left <= 0:
                return math.ceil(GROWTH ** (bucket + 1))
        return math.ceil(GROWTH**BUCKETS)


class Outputs:
    """Lengths by (model, tenant), and by model for tenants seldom seen. Bounded: the tenant idle for longest is
    forgotten."""

    def __init__(self) -> None:
        self._models: dict[str, Lengths] = {}
        self._tenants: OrderedDict[tuple[str, str], Lengths] = OrderedDict()

    def saw(self, model: str, tenant: str, tokens: int) -> None:
        """A response ended by itself after this many tokens."""
        self._models.setdefault(model, Lengths()).add(tokens)
        lengths = self._tenants.get((model, tenant))
        if lengths is None:
            lengths = self._tenants[model, tenant] = Lengths()
            if len(self._tenants) > TENANTS_LIMIT:
                self._tenants.popitem(last=False)
        else:
            self._tenants.move_to_end((model, tenant))
        lengths.add(tokens)

    def expected(self, model: str, tenant: str, maximum: int) -> int:
        """The p90 of its tenant, else of its model, else the maximum; never above the maximum."""
        lengths = self._tenants.get((model, tenant))
        if lengths is None or lengths.total < ENOUGH:
            lengths = self._models.get(model)
        if lengths is None or lengths.total < ENOUGH:
            return maximum
        return min(maximum, lengths.p90)
