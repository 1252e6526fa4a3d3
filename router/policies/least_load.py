"""The replica with the least load for its weight.

    load = (own leases + requests the engine reported beyond them + 1) / weight

Own leases are counted when granted: engines report too late to stop a herd. Ties go to the fewest tokens held, then to
the replica that has rested longest.
"""

from __future__ import annotations

from router.core.candidates import PlacementContext
from router.core.replica import Replica


class LeastLoad:
    """Takes the replica with the lowest load for its weight."""

    name = "least_load"

    def choose(self, context: PlacementContext) -> Replica | None:
        """The candidate with the least load after taking this one."""
        return min(context.candidates(), key=_burden, default=None)


def _burden(replica: Replica) -> tuple[float, float, int]:
    load = (replica.leases + replica.foreign + 1) / replica.pull
    return load, replica.tokens / replica.pull, replica.chosen
