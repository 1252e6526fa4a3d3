"""The default policy, which chooses the replica that would answer first, including the cost to other requests.

    cost = own · time to compute the uncached part               (at the replica's own speed: the cost to the pool)
         + wait · predicted time to first token                  (queue and own part: later but in time matters little)
         + late_s · (predicted / time left − safe)²              (only beyond `safe`: predictions are not that exact)
         + eviction · uncached part · youth of evicted blocks    (blocks in use would have to be computed again)
         + harm · slowdown of the streams that run there         (their pauses during the prefill, and one more stream)
         − affinity · time to compute the uncached part          (on the prompt's own replica on the hash ring)

The factors are `PrefixWeights`. A hot prefix stays on its replica while the promise can be kept there; after that, a
second replica computes it and both hold it. Without a promise, waiting counts in full. No threshold turns locality off.
Only prefix holders, the prompt's replicas on the ring and a few replicas drawn in turn are considered, so that a
thousand replicas cost as much as twenty.
"""

from __future__ import annotations

import math

import msgspec

from router.core.candidates import Candidate, PlacementContext
from router.core.replica import Replica
from router.core.ring import affinity_key

EXHAUSTIVE = 16
"""Number of free replicas up to which all are considered."""
HOLDERS = 8
RING_PLACES = 2
DRAWN = 6
SHORTEST_LEFT_S = 0.01
STRIDE = 0x9E3779B1
"""An odd number near 2^32 over the golden ratio, so that its multiples spread evenly over any number of replicas."""


class PrefixWeights(msgspec.Struct, frozen=True):
    """Cost of a second of each kind relative to a second of the pool's own work. docs/adr/0010 explains the form of the
    cost, 0011 and 0012 its measures. "Measured" names the sweep in docs/log.md; "chosen" means that it records none.
    Ranges are the measured ones, or those in which the term keeps its meaning."""

    own: float = 1.0
    """Unitless scale of all others: a second of prefill on the replica."""
    wait: float = 0.15
    """Unitless, 0.1 to 0.3. Measured (2026-11-20, "what engines keep is learnt"): hit rates at 0.15, 0.2, 0.3."""
    safe: float = 0.5
    """Part of the time left, 0 to 1, that a prediction may use before lateness costs. Chosen."""
    late_s: float = 1.0
    """Seconds, 0.5 to 2, for a prediction that uses `safe` + 1 of the time left. Measured (same entry): a higher cost
    was no better with a `wait` of 0.15."""
    unpromised_own: float = 0.5
    """Unitless, 0 to 1: the pool's work if there is no promise and waiting counts in full. Chosen."""
    eviction: float = 1.0
    """Unitless, 0.5 to 2: an evicted block is worth the cost of recomputing it. Measured (same entry): 1.5 and 2."""
    reuse_prompts: float = 250.0
    """Prompts per replica, 100 to 600: a prefix unused for this many prompts is e times less likely to be used again.
    Measured (same entry): 400 and 600."""
    harm: float = 0.05
    """Unitless, 0.02 to 0.2: a second's pause of one running stream. Measured (docs/log.md, "why the hit rate fell
    under load"): goodput 2.41, 2.44, 2.46, 2.44 at 0.02, 0.05, 0.1, 0.2."""
    affinity: float = 0.1
    """Share of the own work, 0 to less than 1: the value of a prompt's own replica on the ring. Chosen."""
    cold: float = 1.0
    """Multiple of the own work, 0 to 3, when a replica has just become healthy: its cache is cold, its first requests
    are not typical, and every new request would go there at once. Chosen."""
    slow_start_s: float = 30.0
    """Seconds, 5 to 120, over which `cold` fades to nothing. Chosen."""
    evenness_s: float = 0.002
    """Seconds per request on the replica, 0.0005 to 0.01: if prompts are so short that all replicas seem equal, noise
    in the rates must not send every request to one. Chosen: a tenth of the initial start time of a first token."""


class Prefix:
    """Chooses the candidate with the lowest cost among those considered."""

    name = "prefix"

    def __init__(self, weights: PrefixWeights | None = None) -> None:
        self._weights = weights or PrefixWeights()
        self._turn = 0

    def choose(self, context: PlacementContext) -> Replica | None:
        """The candidate with the least cost."""
        free = context.pool.free
        if len(free) <= EXHAUSTIVE:
            return self._best(context, context.candidates())
        best = self._best(context, [replica for replica in self._few(context, free) if context.takes(replica)])
        return best or self._best(context, context.candidates())

    def _best(self, context: PlacementContext, candidates: list[Replica]) -> Replica | None:
        if not candidates:
            return None
        ring = context.pool.ring.clockwise(affinity_key(context.ask)) if len(candidates) > 1 else iter(())
        home = next(ring, None)
        best, least = candidates[0], float("inf")
        waiting = context.waiting
        ttft_slo_s = waiting.ttft_slo_s
        left_s = max(waiting.asked_at + ttft_slo_s - context.now, SHORTEST_LEFT_S) if ttft_slo_s else 0.0
        for replica in candidates:
            candidate = context.candidate(replica)
            candidate.cost = _cost(self._weights, context, candidate, replica is home, left_s)
            if candidate.cost < least or (candidate.cost == least and replica.chosen < best.chosen):
                best, least = replica, candidate.cost
        return best

    def _few(self, context: PlacementContext, free: list[Replica]) -> list[Replica]:
        pool = context.pool
        few: dict[str, Replica] = {}
        for slot, _ in pool.index.holders(context.match, HOLDERS):
            replica = pool.by_slot[slot]
            few[replica.id] = replica
        for index, replica in enumerate(pool.ring.clockwise(affinity_key(context.ask))):
            if index == RING_PLACES:
                break
            few[replica.id] = replica
        for _ in range(DRAWN):
            self._turn += 1
            replica = free[(self._turn * STRIDE & 0xFFFFFFFF) * len(free) >> 32]
            few[replica.id] = replica
        return list(few.values())


def _cost(weights: PrefixWeights, context: PlacementContext, candidate: Candidate, home: bool, left_s: float) -> float:
    """The cost of a candidate. left_s: time left of the promise; 0 for no promise."""
    replica, latency_model = candidate.replica, context.pool.latency_model
    running = candidate.running
    if replica.prefilling:
        own_s = replica.ratio.value * latency_model.work_s(candidate.uncached_tokens, candidate.pairs, running)
    else:  # no prompt is ahead, so this is the whole prediction except the start
        own_s = candidate.predicted_s - replica.ratio.value * latency_model.first_token.weights[0]
    pool, predicted_s = context.pool, candidate.predicted_s
    if left_s:
        cost = weights.own * own_s + weights.wait * predicted_s
        if predicted_s > weights.safe * left_s:
            beyond = predicted_s / left_s - weights.safe
            cost += weights.late_s * beyond * beyond
    else:
        cost = predicted_s + weights.unpromised_own * own_s
    if replica.slot in pool.index.full:
        prompts_since = pool.index.turnover(replica.slot) / pool.usable
        cost += weights.eviction * own_s * math.exp(-prompts_since / weights.reuse_prompts)
    if running:
        pauses_s = own_s * running
        slower_s = replica.ratio.value * latency_model.token_s_per_stream * context.growth_tokens * running
        cost += weights.harm * (pauses_s + slower_s)
    if home:
        cost -= weights.affinity * own_s
    age_s = context.now - replica.healthy_since
    if age_s < weights.slow_start_s:
        cost += weights.cold * (1 - age_s / weights.slow_start_s) * own_s
    cost += weights.evenness_s * (replica.leases + replica.foreign)
    if pool.weighted:
        # beyond its share of the pool's leases, a replica's cost rises with the excess
        cost *= max(1.0, (replica.leases + 1) * pool.weight / ((pool.leases + 1) * replica.pull))
    return cost
