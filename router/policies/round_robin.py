"""Chooses each replica in turn, regardless of load and weight, as a baseline for the other policies."""

from __future__ import annotations

from router.core.candidates import PlacementContext
from router.core.replica import Replica


class RoundRobin:
    """Chooses the replicas of a pool in turn."""

    name = "round_robin"

    def choose(self, context: PlacementContext) -> Replica | None:
        """The candidate that was chosen least recently."""
        return min(context.candidates(), key=lambda replica: (replica.chosen, replica.id), default=None)
