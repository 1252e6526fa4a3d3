"""Each replica in turn, blind to load and weight: the baseline of the other policies."""

from __future__ import annotations

from router.core.candidates import PlacementContext
from router.core.replica import Replica


class RoundRobin:
    """Takes the replicas of a pool by turns."""

    name = "round_robin"

    def choose(self, context: PlacementContext) -> Replica | None:
        """The candidate chosen longest ago."""
        return min(context.candidates(), key=lambda replica: (replica.chosen, replica.id), default=None)
