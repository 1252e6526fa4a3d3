"""The two halves of a request that a prefill and a decode engine serve together, as placement sees them.

Only the prompt's half looks for cached prefixes: decode engines are given keys and values, and chosen by load.
"""

from __future__ import annotations

import msgspec

from contracts.lease import LeaseRequest, prefill_id
from router.config import RouterConfig
from router.core import unread
from router.core.candidates import PlacementContext
from router.core.fair_queue import account_of
from router.core.pool import PoolState
from router.core.replica import Replica
from router.core.state import LiveLease, QueuedRequest


def answer_of(waiting: QueuedRequest) -> QueuedRequest:
    """The decode engine's half."""
    return _half(waiting, msgspec.structs.replace(waiting.ask, prefix_hashes=b""))


def prefill_context(config: RouterConfig, pool: PoolState, waiting: QueuedRequest, now: float) -> PlacementContext:
    """The prefill engine's half, to be placed in `pool`. One token is all that it generates."""
    ask = msgspec.structs.replace(waiting.ask, lease_id=prefill_id(waiting.ask.lease_id), max_output_tokens=1)
    asked = _half(waiting, ask)
    tenant = pool.queue.tenant(account_of(ask))
    return PlacementContext(asked, pool, tenant, config.kv_reserve, now, config.adapter_load_s)


def prefill_lease(context: PlacementContext, replica: Replica, now: float, limit_blocks: int) -> LiveLease:
    """What is counted of it, the prompt entered among those that its engine holds. limit_blocks: of a replica."""
    ask, pool, candidate = context.ask, context.pool, context.candidate(replica)
    live = LiveLease(
        ask.lease_id,
        replica.id,
        tokens=ask.tokens,
        since=now,
        lease=None,
        ask=ask,
        prompt_tokens=ask.prompt_tokens,
        uncached_tokens=candidate.uncached_tokens,
        pairs=candidate.pairs,
        growth_tokens=1,
        growth_left=1,
        overlap_blocks=candidate.overlap_blocks,
        work_ahead_tokens=candidate.ahead_tokens,
        work_ahead_pairs=candidate.ahead_pairs,
        running=replica.decoding,
        in_flight=replica.leases + 1,
        trial=replica.breaker.half_open,
        waits_for_first_token=True,
        work_s=context.work_s(replica, candidate),
        read_blocks=unread.read_of(ask, candidate.overlap_blocks, replica),
    )
    if candidate.overlap_blocks:
        live.overlap_stamp = pool.index.stamp(context.match, replica.slot)
    if replica.prefilling:
        live.computing_stamp = next(iter(replica.prefilling.values())).index_stamp
    pool.index.hold(replica.slot, context.match)
    live.index_stamp = pool.index.clock
    pool.index.trim(replica.slot, pool.capacity_blocks(replica, limit_blocks))
    return live


def _half(waiting: QueuedRequest, ask: LeaseRequest) -> QueuedRequest:
    half = msgspec.structs.replace(waiting, ask=ask)
    half.start_by = waiting.start_by  # set anew where one is made
    return half
