"""Sends a session, or prompts with the same beginning, to one replica while its load allows it, which gives locality
without knowledge of any cache.

Loads are bounded: the walk on the ring skips replicas that hold more than `BOUND` times the mean for their weight.
"""

from __future__ import annotations

from router.core.candidates import PlacementContext
from router.core.replica import Replica
from router.core.ring import affinity_key

BOUND = 1.25


class ConsistentHash:
    """Chooses the replica that owns the prompt's key on the hash ring, within the bound on loads."""

    name = "consistent_hash"

    def choose(self, context: PlacementContext) -> Replica | None:
        """The first replica on the ring within the bound that can take the request, else the first that can take it."""
        replicas = [replica for replica in context.pool.replicas if replica.usable]
        weights = sum(replica.pull for replica in replicas)
        allowed = BOUND * (sum(replica.leases for replica in replicas) + 1) / weights if weights else 0.0
        fallback = None
        for replica in context.pool.ring.clockwise(affinity_key(context.ask)):
            if not context.takes(replica):
                continue
            if replica.leases < allowed * replica.pull:
                return replica
            fallback = fallback or replica
        return fallback
