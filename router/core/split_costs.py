"""Costs of serving a request whole and split, from the learnt rates and the work ahead on the engines of both sides."""

from __future__ import annotations

from contracts.service_class import yields
from router.config import RouterConfig, slo_of
from router.core import pairs
from router.core.candidates import Candidate, PlacementContext
from router.core.fair_queue import account_of
from router.core.pool import PoolState
from router.core.replica import Replica
from router.core.split import Costs
from router.core.state import LiveLease, QueuedRequest


def costs_of(
    config: RouterConfig, whole: PoolState, decode: PoolState, prefill: PoolState, waiting: QueuedRequest, now: float
) -> Costs | None:
    """The costs on both sides; None while the whole pool's rates, by which both are compared, are unknown. Each pool
    must have a usable engine that suits the request."""
    model, ask = whole.latency_model, waiting.ask
    if not model.trusted:
        return None
    tenant = whole.queue.tenant(account_of(ask))
    best_whole = _soonest(PlacementContext(waiting, whole, tenant, config.kv_reserve, now))
    best_prefill = _soonest(pairs.prefill_context(config, prefill, waiting, now))
    tokens = best_prefill.ahead_tokens + best_prefill.uncached_tokens
    attention_pairs = best_prefill.ahead_pairs + best_prefill.pairs
    return Costs(
        whole_wait_s=best_whole.predicted_s + _queue_s(whole, waiting) + _closed_s(config, whole, waiting, now),
        interference_s=interference_s(whole, best_whole),
        # by the whole pool's rates, because a prefill pool's time to first token includes the transfer
        pair_wait_s=model.first_token_s(tokens, attention_pairs, 0) + _queue_s(decode, waiting),
        transfer_s=whole.split_rule.transfer_s(ask.prompt_tokens),
    )


def interference_s(pool: PoolState, candidate: Candidate) -> float:
    """Time for which each stream on an engine pauses for a prompt.

    Every chunk is a step in which each stream gets a token, like in any other, so the time of a plain step is not lost.
    """
    replica, model = candidate.replica, pool.latency_model
    if replica.decoding <= 0:
        return 0.0
    step_tokens = replica.load.step_tokens
    steps = candidate.uncached_tokens / step_tokens if step_tokens else 0.0
    prompt_s = model.work_s(candidate.uncached_tokens, candidate.pairs, replica.decoding)
    return replica.ratio.value * max(prompt_s - steps * model.token_s(replica.decoding), 0.0)


def saw_pair(whole: PoolState, live: LiveLease, ttft_s: float, cached_tokens: int) -> None:
    """Learn the transfer from a pair's first token: its time beyond the prompt's. live: the prefill engine's half."""
    if not whole.latency_model.trusted:
        return
    own = max(live.prompt_tokens - cached_tokens, 1) if cached_tokens else live.uncached_tokens
    prompt_s = whole.latency_model.first_token_s(live.work_ahead_tokens + own, live.work_ahead_pairs + live.pairs, 0)
    whole.split_rule.saw_transfer(live.prompt_tokens, ttft_s - prompt_s)


def _soonest(context: PlacementContext) -> Candidate:
    suited: list[Replica] = [each for each in context.pool.replicas if each.usable and each.suits(context.ask)]
    return min(map(context.candidate, suited), key=lambda candidate: candidate.predicted_s)


def _closed_s(config: RouterConfig, pool: PoolState, waiting: QueuedRequest, now: float) -> float:
    """Seconds until the pool's streams can bear another prompt."""
    slo = slo_of(config.slos, waiting.ask.tier, waiting.ask.prompt_tokens)
    if slo is None or not slo.tpot_s or pool.idle:
        return 0.0
    return pool.pacing.opens_in_s(slo.tpot_s, pool.usable, pool.leases, now, over_share=False)


def _queue_s(pool: PoolState, waiting: QueuedRequest) -> float:
    """Seconds until the request's turn; 0 if a slot is free, and all that wait, if any, yield to the request."""
    goes_past = yields(pool.queue.highest) and not yields(waiting.ask.priority)
    if pool.free and (goes_past or not len(pool.queue)):
        return 0.0
    return pool.wait_s(waiting)
