"""A policy's view of one lease request: the replicas that may take it, their work, and the predicted times to first
token."""

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
"""A first token that is late by this factor and by this time beyond it indicates that the engine may hang, unless a
poll has since seen it compute. Under other load on the machine, an engine is merely slower, and a request sent
elsewhere would compute its prompt again where other requests also wait."""
LATE_SHARE = 0.25
"""Largest work ahead of a request whose promise is broken, as a share of the promise. It is enough to keep engines
busy, and leaves room for requests that can still be in time. A tenant with more than its share gets an engine only if
no prompt is ahead, or if nearly all of its own prompt is cached there: computed elsewhere, the prompt would take far
more from the others than its slot."""
HELD_SHARE = 0.1
"""Largest share of a prompt that may be missing if it counts as nearly all cached."""
SHORT_WORK_S = 0.1
"""Work ahead that never holds a request back, because reports and grants take about as long to arrive."""
SHARED_RESERVE = 0.1
"""Share of slots and memory that a tenant with more than its share leaves to the others."""
UNKNOWN_TOKENS = 4_096
"""Prompt tokens that a replica may get before the pool's speed is known, and again for every response seen."""


class Candidate(msgspec.Struct):
    """The prediction for one replica."""

    replica: Replica
    overlap_blocks: int
    uncached_tokens: int
    ahead_tokens: int
    """Prompt tokens of other requests that the replica computes before, or together with, the request's own."""
    ahead_pairs: float
    pairs: float
    """Prompt tokens ahead and of the request itself, counted in attention pairs."""
    predicted_s: float
    """Time to the first token if the lease is granted now."""
    running: int
    """Number of streams that decode on the replica."""
    cost: float = 0.0
    """The policy's own measure, for the record."""


class PlacementContext:
    """The short-lived state of one attempt to place one lease request."""

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
        """All candidates that the policy considered, by replica id."""
        self.why: Reason | None = None
        """The reason why the last replica could not take the request."""
        expected = pool.outputs.expected(ask.model, ask.organization_id, ask.max_output_tokens)
        self.growth_tokens = min(ask.max_output_tokens, int(expected * pool.cache_reports.safety))
        self._late = now > waiting.start_by
        self._over_share = pool.queue.over_share(tenant)
        self._yields = yields(ask.priority) and pool.queue.contested(now)
        self.tokens_per_block = tokens_per_block(pool, ask)

    def candidates(self) -> list[Replica]:
        """All replicas that can take the request, for policies that consider all."""
        return [replica for replica in self.pool.free if self.takes(replica)]

    def takes(self, replica: Replica) -> bool:
        """Whether the replica is free and may get this request now; if not, `why` has the reason."""
        ask = self.ask
        if replica.at_free < 0:
            self.why = Reason.PLACES_TAKEN
            return False
        if replica.id in ask.excluded_replicas:
            return False
        if ask.idle_replica and (
            replica.leases
            or replica.foreign
            or (replica.id != ask.idle_replica and not self.pool.links.decode)  # it names no prefill engine
        ):
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
        """Whether the replica can keep the promise, or the promise is broken anyway and hardly any work is ahead."""
        waiting, latency_model = self.waiting, self.pool.latency_model
        if replica.prefill_tokens <= 0 or not waiting.ttft_slo_s or replica.unknown:
            return True
        if self.pool.links.prefill:
            return True  # other engines compute these prompts, and their half of the request decides
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
        """The prediction for a replica, which is kept for the record of the decision."""
        known = self.considered.get(replica.id)
        if known is not None:
            return known
        overlap = self.pool.index.overlap(self.match, replica.slot)
        uncached = self._uncached(overlap)
        latency_model, ratio = self.pool.latency_model, replica.ratio.value
        running = replica.decoding
        ahead, ahead_pairs, stuck_s = self._ahead(replica, uncached)
        pairs = pairs_of(uncached, self.ask.prompt_tokens)
        predicted_s = ratio * latency_model.first_token_s(ahead + uncached, ahead_pairs + pairs, running) + stuck_s
        if self.ask.adapter and not replica.adapters.loaded(self.ask.adapter):
            predicted_s += self.adapter_load_s
        candidate = Candidate(replica, overlap, uncached, ahead, ahead_pairs, pairs, predicted_s, running)
        self.considered[replica.id] = candidate
        return candidate

    def _ahead(self, replica: Replica, uncached: int) -> tuple[int, float, float]:
        """Prompt tokens of other requests that the replica will compute before the last of these `uncached`, the same
        in pairs, and the seconds for which it may already hang."""
        ahead, ahead_pairs, stuck_s = replica.prefill_tokens, replica.prefill_pairs, 0.0
        if replica.prefilling:
            # the engine is computing the oldest prompt, whose finished part is no longer ahead
            head = next(iter(replica.prefilling.values()))
            elapsed_s = self.now - max(head.since, replica.progress_at)
            latency_model, ratio = self.pool.latency_model, replica.ratio.value
            expected_s = ratio * latency_model.first_token_s(head.uncached_tokens, head.pairs, replica.decoding)
            done = min(elapsed_s / expected_s, 1.0) if expected_s > 0 else 0.0
            ahead -= int(head.uncached_tokens * done)
            ahead_pairs = max(ahead_pairs - head.pairs * done, 0.0)
            silent_s = min(elapsed_s, self.now - replica.moved_at)
            if silent_s > STUCK_FACTOR * expected_s + STUCK_S:
                stuck_s = silent_s
        share = replica.load.share_behind
        if share and ahead:
            # shorter prompts go first, and the oldest prompt gets the part of every step that is not reserved for later
            # ones
            later = islice(replica.prefilling.values(), 1, None)
            shorter = sum(prompt.uncached_tokens for prompt in later if prompt.uncached_tokens <= uncached)
            before = replica.load.step_tokens + shorter + (shorter + uncached) * (1 - share) / share
            if before < ahead:  # otherwise it may be infinite
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
    """Mean number of prompt tokens per block of a request's chain."""
    if ask.prefix_kind == "tokens":
        return float(BLOCK_TOKENS)
    blocks = len(ask.prefix_hashes) // HASH_BYTES
    return ask.prompt_tokens / (blocks + 0.5) if blocks >= 2 else pool.cache_reports.tokens_per_block


def uncached_tokens(pool: PoolState, ask: LeaseRequest, overlap_blocks: int, per_block: float) -> int:
    """Prompt tokens left to compute if this many of its blocks are cached. per_block: see `tokens_per_block`."""
    cached = int(overlap_blocks * per_block)
    if overlap_blocks and ask.prefix_kind == "tokens":
        cached += int(pool.cache_reports.beyond_tokens)
    return max(ask.prompt_tokens - cached, 1)
