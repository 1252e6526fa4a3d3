"""Each replica in turn, blind to load and weight: the naive twin the others are measured against."""

from __future__ import annotations

from collections.abc import Sequence

from contracts.lease import Ask
from router.core.replica import Replica


class RoundRobin:
    """See the module."""

    name = "round_robin"

    def choose(self, ask: Ask, candidates: Sequence[Replica], now: float) -> Replica:
        """The candidate chosen longest ago."""
        return min(candidates, key=lambda replica: (replica.chosen, replica.id))
