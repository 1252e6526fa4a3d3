"""Ours: where the request would begin to answer first, counting what that costs the others.

    cost = OWN · time to compute the uncached part               (at the replica's own speed: what it costs the pool)
         + WAIT · predicted time to first token                  (queue and own part: later but in time matters little)
         + LATE · (predicted / time left − SAFE)²                (only beyond SAFE: predictions are not that exact)
         + EVICTION · uncached part · youth of what it evicts    (what will be used again would be computed again)
         + HARM · slowdown of the streams that run there         (their pauses while it is computed, one stream more)
         − AFFINITY · time to compute the uncached part          (on the prompt's own places of the hash ring)

A hot prefix stays where it is while the promise can be kept there; then a second replica computes it and both hold it.
Without a promise, waiting counts in full. There is no threshold at which locality is thrown away. Only prefix holders,
the prompt's places on the ring and a few replicas drawn in turn are looked at, so that a thousand replicas cost what
twenty do.
"""

from __future__ import annotations

import math

from router.core.candidates import Candidate, PlacementContext
from router.core.replica import Replica
from router.core.ring import affinity_key

EXHAUSTIVE = 16
"""Up to so many free replicas all are looked at."""
HOLDERS = 8
RING_PLACES = 2
DRAWN = 6
OWN = 1.0
WAIT = 0.15
SAFE = 0.5
LATE_S = 1.0
UNPROMISED_OWN = 0.5
EVICTION = 1.0
REUSE_PROMPTS = 250.0
"""Per replica: a prefix not used while so many prompts were given out is e times less likely to be used again."""
HARM = 0.05
AFFINITY = 0.1
SHORTEST_LEFT_S = 0.01
SLOW_START_S = 30.0
"""A replica that has just become healthy is taken to be slower than it is for this long: its cache is cold, its first
requests are not typical, and everyone who is new would go there at once."""
COLD_FACTOR = 1.0
EVENNESS_S = 0.002
STRIDE = 0x9E3779B1
"""Odd and near 2^32 over the golden ratio: steps of it spread evenly over any number of replicas."""


class Prefix:
    """See the module."""

    name = "prefix"

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, question: PlacementContext) -> Replica | None:
        """The candidate with the least cost."""
        free = question.pool.free
        if len(free) <= EXHAUSTIVE:
            return self._best(question, question.candidates())
        best = self._best(question, [one for one in self._few(question, free) if question.takes(one)])
        return best or self._best(question, question.candidates())

    def _best(self, question: PlacementContext, candidates: list[Replica]) -> Replica | None:
        if not candidates:
            return None
        ring = question.pool.ring.clockwise(affinity_key(question.ask)) if len(candidates) > 1 else iter(())
        home = next(ring, None)
        best, least = candidates[0], float("inf")
        waiting = question.waiting
        ttft_slo_s = waiting.ttft_slo_s
        left_s = max(waiting.asked_at + ttft_slo_s - question.now, SHORTEST_LEFT_S) if ttft_slo_s else 0.0
        for replica in candidates:
            prospect = question.prospect(replica)
            prospect.cost = _cost(question, prospect, replica is home, left_s)
            if prospect.cost < least or (prospect.cost == least and replica.chosen < best.chosen):
                best, least = replica, prospect.cost
        return best

    def _few(self, question: PlacementContext, free: list[Replica]) -> list[Replica]:
        pool = question.pool
        found: dict[str, Replica] = {}
        for slot, _ in pool.index.holders(question.match, HOLDERS):
            replica = pool.by_slot[slot]
            found[replica.id] = replica
        for place, replica in enumerate(pool.ring.clockwise(affinity_key(question.ask))):
            if place == RING_PLACES:
                break
            found[replica.id] = replica
        for _ in range(DRAWN):
            self._turn += 1
            replica = free[(self._turn * STRIDE & 0xFFFFFFFF) * len(free) >> 32]
            found[replica.id] = replica
        return list(found.values())


def _cost(question: PlacementContext, prospect: Candidate, home: bool, left_s: float) -> float:
    """left_s: of the promise; 0: nothing is promised."""
    replica, rates = prospect.replica, question.pool.rates
    running = replica.decoding
    if replica.prefilling:
        own_s = replica.ratio.value * rates.work_s(prospect.uncached_tokens, prospect.pairs, running)
    else:  # nothing is ahead: all of the prediction but the start
        own_s = prospect.predicted_s - replica.ratio.value * rates.first_token.weights[0]
    pool, predicted_s = question.pool, prospect.predicted_s
    if left_s:
        cost = OWN * own_s + WAIT * predicted_s
        if predicted_s > SAFE * left_s:
            beyond = predicted_s / left_s - SAFE
            cost += LATE_S * beyond * beyond
    else:
        cost = predicted_s + UNPROMISED_OWN * own_s
    if replica.slot in pool.index.full:
        cost += EVICTION * own_s * math.exp(-pool.index.turnover(replica.slot) / (REUSE_PROMPTS * pool.usable))
    if running:
        pauses_s = own_s * running
        slower_s = replica.ratio.value * rates.token_s_per_stream * question.growth_tokens * running
        cost += HARM * (pauses_s + slower_s)
    if home:
        cost -= AFFINITY * own_s
    age_s = question.now - replica.healthy_since
    if age_s < SLOW_START_S:
        cost += COLD_FACTOR * (1 - age_s / SLOW_START_S) * own_s
    # where prompts are so short that all replicas look alike, noise in the rates must not send everyone to one
    cost += EVENNESS_S * (replica.leases + replica.foreign)
    if pool.weighted:
        # beyond its share of the pool's leases a replica is as much dearer as it is beyond
        cost *= max(1.0, (replica.leases + 1) * pool.weight / ((pool.leases + 1) * replica.weight))
    return cost
