"""The two halves of a request that a prefill engine and a decode engine serve together, for placement.

Only the prompt's half uses cached prefixes: decode engines receive keys and values, and are chosen by load.
"""

from __future__ import annotations

import msgspec

from contracts.lease import LeaseRequest, prefill_id
from router.config import RouterConfig
from router.core.candidates import PlacementContext
from router.core.fair_queue import account_of
from router.core.pool import PoolState
from router.core.state import QueuedRequest


def answer_of(waiting: QueuedRequest) -> QueuedRequest:
    """The decode engine's half."""
    return _half(waiting, msgspec.structs.replace(waiting.ask, prefix_hashes=b""))


def prefill_context(config: RouterConfig, pool: PoolState, waiting: QueuedRequest, now: float) -> PlacementContext:
    """The context of the prefill engine's half, to be placed in `pool`. This half generates a single token."""
    ask = msgspec.structs.replace(waiting.ask, lease_id=prefill_id(waiting.ask.lease_id), max_output_tokens=1)
    half = _half(waiting, ask)
    tenant = pool.queue.tenant(account_of(ask))
    return PlacementContext(half, pool, tenant, config.kv_reserve, now, config.adapter_load_s)


def _half(waiting: QueuedRequest, ask: LeaseRequest) -> QueuedRequest:
    half = msgspec.structs.replace(waiting, ask=ask)
    half.start_by = waiting.start_by  # which the constructor sets again
    return half
