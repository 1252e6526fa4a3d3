"""Learns the latency model, cache contents and lengths of responses from reports. It decides nothing.

An engine's `cached_tokens` is the truth, and the index is a prediction. A lower count than predicted shows that the
engine has evicted blocks that the index still held, and all blocks used less recently. A higher count shows that the
index has dropped blocks too early.
"""

from __future__ import annotations

from contracts.lease import LeaseEnd
from contracts.prefix import BLOCK_TOKENS
from contracts.service_class import yields
from contracts.usage import Finish
from router.core.latency_model import pairs_of
from router.core.pool import PoolState
from router.core.replica import Replica
from router.core.state import LiveLease

FILL_LIMITS = (0.02, 8.0)
FILL_MOST = 0.97
FILL_LEAST, GUESS_LEAST = 0.75, 0.25
"""Upper and lower bounds of the share of the assumed fill that remains after a prompt that was not cached as expected:
a cleared cache looks the same. If the engine reports no capacity, the fill was an estimate, and falls faster."""
FILL_UP = 1.15
"""Rise of the fill after the engine held blocks that were assumed evicted. This is rarely seen, because few requests go
to replicas that are expected to hold nothing."""
TOLERANCE = 0.1
"""Share of the prompt by which prediction and report may differ, because blocks, pages and templates do not align."""


def first_token(
    pool: PoolState, replica: Replica, live: LiveLease, ttft_s: float, cached_tokens: int, now: float
) -> None:
    """Learn from an engine's first token, `ttft_s` after the grant."""
    live.observed_s = live.ttft_s = ttft_s
    if replica.learnt is not None:
        replica.learnt.first_token(ttft_s, max(live.prompt_tokens - cached_tokens, 1), replica.leases)
    if cached_tokens > 0:
        pool.cache_reports.known = True
    # without a count of cached tokens, the work is unknown until the final usage
    if cached_tokens > 0 or not live.overlap_blocks:
        _learn_rate(pool, replica, live, live.prompt_tokens - cached_tokens, now)


def ended(pool: PoolState, replica: Replica, live: LiveLease, end: LeaseEnd, now: float, limit_blocks: int) -> None:
    """Learn from the end of a lease, with the engine's counts."""
    usage, ask = end.usage, live.ask
    if ask is None or usage.prompt_tokens <= 0:
        return
    if live.waits_for_first_token and usage.prompt_tokens < live.prompt_tokens:
        return  # ended before prefill, which reveals neither cache contents nor response lengths
    if usage.cached_tokens > 0:
        pool.cache_reports.known = True
    if live.observed_s:
        cached = usage.cached_tokens if pool.cache_reports.known else live.prompt_tokens - live.uncached_tokens
        _learn_rate(pool, replica, live, usage.prompt_tokens - cached, now)
    if live.first_token_at and usage.completion_tokens > 1:
        running = (live.running + replica.decoding) // 2
        paused_s = replica.computed_s(now) - live.worked_before_s
        if live.tpot_slo_s:
            pool.pacing.saw_stream(now - live.first_token_at <= live.tpot_slo_s * (usage.completion_tokens - 1))
        if not yields(ask.priority) and pool.token_teachers.admits(ask.organization_id):
            pool.latency_model.saw_tokens(now - live.first_token_at, usage.completion_tokens - 1, running, paused_s)
    pool.cache_reports.saw_prompt(usage.prompt_tokens, len(ask.prefix_hashes) // 16)
    if end.finish is Finish.COMPLETE and not ask.idle_replica:
        pool.outputs.saw(ask.model, ask.organization_id, max(usage.completion_tokens, 1))
        pool.cache_reports.ended_well()
    pool.cache_reports.predicted_tokens += live.prompt_tokens - live.uncached_tokens
    pool.cache_reports.reported_tokens += usage.cached_tokens
    if pool.cache_reports.known:
        if live.overlap_blocks and ask.prefix_kind == "tokens":
            pool.cache_reports.saw_beyond(usage.cached_tokens - live.overlap_blocks * BLOCK_TOKENS)
        _correct_index(pool, replica, live, usage.cached_tokens, usage.prompt_tokens, limit_blocks)


def limit(replica: Replica, live: LiveLease, end: LeaseEnd, now: float) -> None:
    """Learn the engine's concurrency from the end of a lease, which is still counted."""
    learnt = replica.learnt
    if learnt is None:
        return
    if end.engine_full:
        learnt.refused(replica.leases)
        return
    whole = live.ask is not None and not live.ask.max_output_tokens  # vectors and scores have no first token
    if end.finish is Finish.COMPLETE and (live.ttft_s or whole):
        prompt_tokens = max(live.prompt_tokens - end.usage.cached_tokens, 1)
        in_flight = (live.in_flight + replica.leases) / 2
        ttft_s, decode_s = live.ttft_s, now - live.first_token_at
        if whole:
            ttft_s, decode_s = now - live.since, 0.0
            learnt.first_token(ttft_s, prompt_tokens, replica.leases)
        learnt.answered(ttft_s, decode_s, prompt_tokens, end.usage.completion_tokens, in_flight)


def _learn_rate(pool: PoolState, replica: Replica, live: LiveLease, uncached_tokens: int, now: float) -> None:
    if live.ask is None or yields(live.ask.priority):  # an engine that knows classes delays it
        return
    organization_id, latency_model = live.ask.organization_id, pool.latency_model
    own = max(uncached_tokens, 1)
    tokens = live.work_ahead_tokens + own
    pairs = live.work_ahead_pairs + pairs_of(own, max(live.prompt_tokens, own))
    if latency_model.trusted:
        expected_s = latency_model.first_token_s(tokens, pairs, live.running)
        replica.ratio.learn(organization_id, live.observed_s, expected_s, now)
    if pool.first_token_teachers.admits(organization_id):
        latency_model.saw_first_token(live.observed_s, tokens, pairs, live.running)
    live.observed_s = 0.0


def _correct_index(
    pool: PoolState, replica: Replica, live: LiveLease, cached_tokens: int, prompt_tokens: int, limit_blocks: int
) -> None:
    predicted = live.prompt_tokens - live.uncached_tokens
    slack = TOLERANCE * prompt_tokens + pool.cache_reports.tokens_per_block
    if cached_tokens < predicted - slack:
        if live.overlap_stamp >= live.computing_stamp:
            return  # the shared blocks were still being computed when this prompt was sent, so nothing was evicted
        pool.index.age(replica.slot, live.overlap_stamp)
        # the engine holds no more than the prompts that it got since it last used the lost blocks
        held = replica.fill * pool.index.held.get(replica.slot, 0) / pool.capacity_blocks(replica, limit_blocks)
        least = FILL_LEAST if replica.load.capacity_tokens else GUESS_LEAST
        replica.fill = max(min(held, replica.fill * FILL_MOST), replica.fill * least, FILL_LIMITS[0])
    elif cached_tokens > predicted + slack:
        replica.fill = min(replica.fill * FILL_UP, FILL_LIMITS[1])
    pool.index.trim(replica.slot, pool.capacity_blocks(replica, limit_blocks))
