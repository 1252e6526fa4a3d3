"""Chooses the replica with the least load for its weight.

    load = (own leases + requests that the engine reported beyond them + 1) / weight

Own leases count from the grant, because engines report too late to stop a herd. Ties go to the replica that holds the
fewest tokens, then to the one that was chosen least recently.
"""

from __future__ import annotations

from router.core.candidates import PlacementContext
from router.core.replica import Replica


class LeastLoad:
    """Chooses the replica with the lowest load for its weight."""

    name = "least_load"

    def choose(self, context: PlacementContext) -> Replica | None:
        """The candidate that would have the least load with this request."""
        return min(context.candidates(), key=_burden, default=None)


def _burden(replica: Replica) -> tuple[float, float, int]:
    load = (replica.leases + replica.foreign + 1) / replica.pull
    return load, replica.tokens / replica.pull, replica.chosen
