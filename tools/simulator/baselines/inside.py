"""Other routers' placement inside Slipstream's queue and admission, to separate the gain of placement from that of
admission. They are policies of the core for comparison only.
"""

from __future__ import annotations

import random

from router.core.candidates import PlacementContext
from router.core.replica import Replica
from tools.simulator.baselines.rule import Request
from tools.simulator.baselines.smg_cache_aware import SmgCacheAware


class SmgInside:
    """smg's cache_aware rule among the replicas that Slipstream's admission allows."""

    name = "smg"

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._rule: SmgCacheAware | None = None

    def choose(self, context: PlacementContext) -> Replica | None:
        """The tree's owner of the prefix if it is allowed, else the least loaded allowed replica."""
        replicas = context.pool.replicas
        candidates = {replica.id for replica in context.candidates()}
        allowed = [number for number, replica in enumerate(replicas) if replica.id in candidates]
        if not allowed:
            return None
        if self._rule is None:
            self._rule = SmgCacheAware()
            self._rule.prepare(len(replicas), random.Random(0))
        # the core's leases are the requests in flight, including those whose clients disconnected
        self._rule.in_flight = [replica.leases for replica in replicas]
        return replicas[self._rule.choose_among(Request(context.ask, self._block_tokens), allowed, context.now)]


class MostCached:
    """The replica that is assumed to hold most of the prompt; of several, the one with the fewest leases."""

    name = "most_cached"

    def choose(self, context: PlacementContext) -> Replica | None:
        """Plain affinity over the core's own index of prefixes."""
        return max(
            context.candidates(),
            key=lambda replica: (context.candidate(replica).overlap_blocks, -replica.leases, -replica.chosen),
            default=None,
        )
