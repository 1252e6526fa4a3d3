"""One ask as a policy sees it: which replicas may take it, the work on each, and the predicted time to first token."""

from __future__ import annotations

from itertools import islice

import msgspec

from contracts.lease import LeaseRequest
from contracts.prefix import BLOCK_TOKENS, HASH_BYTES
from contracts.service_class import yields
from router.core.fair_queue import Tenant
from router.core.latency_model import pairs_of
from router.core.pool import PoolState
from router.core.prefix_index import Match
from router.core.reasons import Reason
from router.core.replica import Replica
from router.core.state import QueuedRequest

STUCK_FACTOR = 3.0
STUCK_S = 1.0
"""A first token that is late by more than this and by this factor indicates that the engine may hang, unless a poll has
seen it compute meanwhile. Under other load on the machine an engine is merely slower, and a request sent elsewhere
would compute its prompt again where others wait as well."""
LATE_SHARE = 0.25
"""Largest work in front of a request whose promise is broken, relative to the promise: enough to keep engines busy,
little enough to leave room for requests that can still be in time. A tenant with more than its share gets an engine
only when no prompt is in front of it, or where nearly all of its own prompt is cached: computed elsewhere it would take
far more from the others than its slot."""
HELD_SHARE = 0.1
"""Largest share of a prompt that may be missing for it to count as nearly all cached."""
SHORT_WORK_S = 0.1
"""This much work in front never holds a request back: reports and grants are under way for about as long."""
SHARED_RESERVE = 0.1
"""Slots and memory that a tenant with more than its share leaves to the others."""
UNKNOWN_TOKENS = 4_096
"""Prompt tokens a replica is given before anything is known of the pool; the same amount again for every response
seen."""


class Candidate(msgspec.Struct):
    """The prediction for one replica."""

    replica: Replica
    overlap_blocks: int
    uncached_tokens: int
    ahead_tokens: int
    """Prompt tokens of other requests that it computes before, or together with, the request's own."""
    ahead_pairs: float
    pairs: float
    """Prompt tokens ahead and of the request, counted in attention pairs."""
    predicted_s: float
    """Time to the first token if granted now."""
    running: int
    """Streams that decode on the replica."""
    cost: float = 0.0
    """The policy's own measure, for the record."""


class PlacementContext:
    """The state of one attempt to place one ask; short-lived."""

    __slots__ = (
        "_away", "_late", "_over_share", "_yields", "adapter_load_s", "ask", "considered", "growth_tokens",
        "kv_reserve", "match", "now", "pool", "tokens_per_block", "waiting", "why",
    )  # fmt: skip

    def __init__(
        self,
        waiting: QueuedRequest,
        pool: PoolState,
        tenant: Tenant,
        kv_reserve: float,
        now: float,
        adapter_load_s: float = 0.0,
    ) -> None:
        """adapter_load_s: see `RouterConfig`."""
        ask = waiting.ask
        self.adapter_load_s = adapter_load_s
        self.waiting = waiting
        self.ask: LeaseRequest = ask
        self.pool = pool
        self.now = now
        self.kv_reserve = kv_reserve
        self._away = pool.kept_away_from(ask)
        self.match: Match = pool.index.match(ask.prefix_hashes)
        self.considered: dict[str, Candidate] = {}
        """By replica id: everything the policy looked at."""
        self.why: Reason | None = None
        """The reason that kept the last replica from taking the ask."""
        expected = pool.outputs.expected(ask.model, ask.organization_id, ask.max_output_tokens)
        self.growth_tokens = min(ask.max_output_tokens, int(expected * pool.cache_reports.safety))
        self._late = now > waiting.start_by
        self._over_share = pool.queue.over_share(tenant)
        self._yields = yields(ask.priority) and pool.queue.contested(now)
        self.tokens_per_block = tokens_per_block(pool, ask)

    def candidates(self) -> list[Replica]:
        """All replicas that take the ask: for policies that look at all."""
        return [replica for replica in self.pool.free if self.takes(replica)]

    def takes(self, replica: Replica) -> bool:
        """The replica is free and may have this ask now; otherwise `why` has the reason."""
        ask = self.ask
        if replica.at_free < 0:
            self.why = Reason.PLACES_TAKEN
            return False
        if replica.id in ask.excluded_replicas:
            return False
        if ask.idle_replica and (replica.id != ask.idle_replica or replica.leases or replica.foreign):
            self.why = Reason.NOT_IDLE
            return False
        if replica.id in self._away:
            self.why = Reason.AVOIDED
            return False
        if (replica.accusers or replica.trials) and (barred := replica.bars(ask.organization_id)) is not None:
            self.why = barred
            return False
        if replica.context_tokens and ask.prompt_tokens + ask.max_output_tokens > replica.context_tokens:
            self.why = Reason.CONTEXT
            return False
        if ask.adapter and not replica.adapters.admits(ask.adapter, ask.organization_id, self.now):
            self.why = Reason.ADAPTERS
            return False
        if not replica.leases and not replica.foreign:
            return True  # nothing to wait for
        if self._yields and replica.prefill_tokens > 0:
            self.why = Reason.YIELDS
            return False
        reserve = self.kv_reserve
        if self._over_share or self._yields:
            reserve += SHARED_RESERVE
            if replica.leases >= replica.max_concurrency * (1 - SHARED_RESERVE):
                self.why = Reason.RESERVED
                return False
        headroom = replica.headroom_tokens
        if headroom is not None:
            need = ask.prompt_tokens + replica.answer_tokens(self.growth_tokens, ask.max_output_tokens)
            if need > headroom - reserve * replica.load.capacity_tokens:
                self.why = Reason.MEMORY
                return False
        return self._in_time(replica)

    def _in_time(self, replica: Replica) -> bool:
        """Its promise can be kept there, or is broken anyway and hardly any work is in front."""
        waiting, latency_model = self.waiting, self.pool.latency_model
        if replica.prefill_tokens <= 0 or not waiting.ttft_slo_s or replica.unknown:
            return True
        if not latency_model.trusted:
            window = UNKNOWN_TOKENS * (1 + latency_model.first_token.count)
            overlap = self.pool.index.overlap(self.match, replica.slot)
            if replica.prefill_tokens + self._uncached(overlap) > window:
                self.why = Reason.PACE_UNKNOWN
                return False
            return True
        work_s = latency_model.work_s(replica.prefill_tokens, replica.prefill_pairs, replica.decoding)
        ahead_s = replica.ratio.value * work_s
        uncached = self._uncached(self.pool.index.overlap(self.match, replica.slot))
        if self._over_share and uncached > HELD_SHARE * self.ask.prompt_tokens:
            self.why = Reason.OVER_SHARE
            return False
        if ahead_s <= SHORT_WORK_S:
            return True
        pairs = pairs_of(uncached, self.ask.prompt_tokens)
        own_s = replica.ratio.value * latency_model.first_token_s(uncached, pairs, replica.decoding)
        left_s = waiting.asked_at + waiting.ttft_slo_s - self.now
        limit_s = LATE_SHARE * waiting.ttft_slo_s if self._late else left_s - own_s
        if ahead_s > limit_s and (replica.load.share_behind or not self._late):
            ahead, ahead_pairs, _ = self._ahead(replica, uncached)
            ahead_s = replica.ratio.value * latency_model.work_s(ahead, ahead_pairs, replica.decoding)
        kept = ahead_s <= limit_s
        if not kept:
            self.why = Reason.TTFT
        return kept

    def candidate(self, replica: Replica) -> Candidate:
        """The prediction for a replica. Remembered, for the record of the decision."""
        found = self.considered.get(replica.id)
        if found is not None:
            return found
        overlap = self.pool.index.overlap(self.match, replica.slot)
        uncached = self._uncached(overlap)
        latency_model, ratio = self.pool.latency_model, replica.ratio.value
        running = replica.decoding
        ahead, ahead_pairs, stuck_s = self._ahead(replica, uncached)
        pairs = pairs_of(uncached, self.ask.prompt_tokens)
        predicted_s = ratio * latency_model.first_token_s(ahead + uncached, ahead_pairs + pairs, running) + stuck_s
        if self.ask.adapter and not replica.adapters.loaded(self.ask.adapter):
            predicted_s += self.adapter_load_s
        found = Candidate(replica, overlap, uncached, ahead, ahead_pairs, pairs, predicted_s, running)
        self.considered[replica.id] = found
        return found

    def _ahead(self, replica: Replica, uncached: int) -> tuple[int, float, float]:
        """Prompt tokens of others that it will compute before the last of these `uncached`, the same in pairs, and
        since when it may hang."""
        ahead, ahead_pairs, stuck_s = replica.prefill_tokens, replica.prefill_pairs, 0.0
        if replica.prefilling:
            # the oldest is being computed: its finished part is no longer ahead
            head = next(iter(replica.prefilling.values()))
            at_it_s = self.now - max(head.since, replica.progress_at)
            latency_model, ratio = self.pool.latency_model, replica.ratio.value
            expected_s = ratio * latency_model.first_token_s(head.uncached_tokens, head.pairs, replica.decoding)
            done = min(at_it_s / expected_s, 1.0) if expected_s > 0 else 0.0
            ahead -= int(head.uncached_tokens * done)
            ahead_pairs = max(ahead_pairs - head.pairs * done, 0.0)
            silent_s = min(at_it_s, self.now - replica.moved_at)
            if silent_s > STUCK_FACTOR * expected_s + STUCK_S:
                stuck_s = silent_s
        share = replica.load.share_behind
        if share and ahead:
            # shorter prompts go first, and of every step the oldest prompt gets the part that is not reserved for those
            # after it
            later = islice(replica.prefilling.values(), 1, None)
            shorter = sum(one.uncached_tokens for one in later if one.uncached_tokens <= uncached)
            before = replica.load.step_tokens + shorter + (shorter + uncached) * (1 - share) / share
            if before < ahead:  # beyond it may be infinite
                ahead, ahead_pairs = int(before), ahead_pairs * int(before) / ahead
        return ahead, ahead_pairs, stuck_s

    def work_s(self, replica: Replica, candidate: Candidate) -> float:
        """Seconds for which the prompt keeps the replica busy."""
        latency_model = self.pool.latency_model
        if not latency_model.trusted:
            return 0.0
        return replica.ratio.value * latency_model.work_s(candidate.uncached_tokens, candidate.pairs, replica.decoding)

    def _uncached(self, overlap_blocks: int) -> int:
        return uncached_tokens(self.pool, self.ask, overlap_blocks, self.tokens_per_block)


def tokens_per_block(pool: PoolState, ask: LeaseRequest) -> float:
    """Prompt tokens in each block of an ask's chain, on average."""
    if ask.prefix_kind == "tokens":
        return float(BLOCK_TOKENS)
    blocks = len(ask.prefix_hashes) // HASH_BYTES
    return ask.prompt_tokens / (blocks + 0.5) if blocks >= 2 else pool.cache_reports.tokens_per_block


def uncached_tokens(pool: PoolState, ask: LeaseRequest, overlap_blocks: int, per_block: float) -> int:
    """Prompt tokens left to compute where this many of its blocks are cached; per_block: `tokens_per_block`."""
    cached = int(overlap_blocks * per_block)
    if overlap_blocks and ask.prefix_kind == "tokens":
        cached += int(pool.cache_reports.beyond_tokens)
    return max(ask.prompt_tokens - cached, 1)
