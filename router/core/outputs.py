"""The lengths of responses by tenant and model, whose p90 is the room that admission reserves."""

from __future__ import annotations

import math
from collections import OrderedDict

BUCKETS = 40
GROWTH = 1.35
"""Upper edge of a bucket relative to the previous one; the last one ends beyond 100,000 tokens."""
FORGET_AT = 400
"""Number of responses at which counts are halved, so that the last few hundred decide."""
ENOUGH = 20
TENANTS_LIMIT = 4_096
_LOG = math.log(GROWTH)


class Lengths:
    """A histogram of lengths on a logarithmic scale."""

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
        """The 90th percentile in tokens, rounded up to a bucket's edge."""
        return self._p90

    def _quantile(self, share: float) -> int:
        left = share * self.total
        for bucket, count in enumerate(self._counts):
            left -= count
            if left <= 0:
                return math.ceil(GROWTH ** (bucket + 1))
        return math.ceil(GROWTH**BUCKETS)


class Outputs:
    """Lengths by (model, tenant), and by model for tenants with few responses. Beyond a limit, the tenant that has been
    idle for longest is dropped."""

    def __init__(self) -> None:
        self._models: dict[str, Lengths] = {}
        self._tenants: OrderedDict[tuple[str, str], Lengths] = OrderedDict()

    def saw(self, model: str, tenant: str, tokens: int) -> None:
        """Learn from a response that ended by itself after this many tokens."""
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
        """The p90 of the tenant, else of the model, else the maximum; never above the maximum."""
        lengths = self._tenants.get((model, tenant))
        if lengths is None or lengths.total < ENOUGH:
            lengths = self._models.get(model)
        if lengths is None or lengths.total < ENOUGH:
            return maximum
        return min(maximum, lengths.p90)
