"""Corrects the index and the work for a prompt that its engine will not read, because its request was superseded,
withdrawn or lost before its first token.

A prompt is assumed to be held from its grant, so that prompts with the same beginning follow it to the replica, and are
counted with their remainder. If the first prompt's request ends before the engine has read the prompt, both assumptions
were wrong: nothing is held, and the next prompt has to be computed completely. Invariant: for every lease without a
first token, `read_blocks` are the blocks of its prompt that its replica has read; further blocks in the index come from
the lease itself, or from another lease without a first token.
"""

from __future__ import annotations

from contracts.lease import LeaseRequest
from contracts.prefix import HASH_BYTES
from router.core.candidates import tokens_per_block, uncached_tokens
from router.core.fair_queue import account_of
from router.core.latency_model import pairs_of
from router.core.pool import PoolState
from router.core.prefix_index import common_blocks
from router.core.replica import Replica
from router.core.state import LiveLease


def read_of(ask: LeaseRequest, overlap_blocks: int, replica: Replica) -> int:
    """Number of a request's leading blocks that the replica has already read, of those that it is assumed to hold."""
    nearest, most = None, 0
    for other in replica.prefilling.values():
        common = _common(other, ask.prefix_hashes)
        if common > most:
            nearest, most = other, common
    if nearest is None or overlap_blocks > most:
        return overlap_blocks  # no lease without a first token has as many blocks in common
    return min(overlap_blocks, nearest.read_blocks)


def began(replica: Replica, live: LiveLease) -> None:
    """Note that a replica has read the prompt of this lease, which must no longer be in `prefilling`."""
    if live.ask is None:
        return
    for other in replica.prefilling.values():
        other.read_blocks = max(other.read_blocks, _common(other, live.ask.prefix_hashes))


def take_back(pool: PoolState, replica: Replica, live: LiveLease, read_tokens: int, now: float) -> None:
    """Correct the state after the end of a lease without a first token, which is no longer counted. read_tokens: tokens
    of its prompt that the engine had read."""
    ask = live.ask
    if ask is None or read_tokens >= live.prompt_tokens:
        return
    index, slot = pool.index, replica.slot
    kept = max(live.read_blocks, int(read_tokens / tokens_per_block(pool, ask)))
    index.cut(slot, index.match(ask.prefix_hashes), kept)
    for other in replica.prefilling.values():
        common = _common(other, ask.prefix_hashes)
        other.read_blocks = max(other.read_blocks, min(common, kept))
        if other.ask is None or common <= kept:
            continue
        match = index.match(other.ask.prefix_hashes)
        overlap = index.overlap(match, slot)
        if overlap < other.overlap_blocks:
            _inherit(pool, replica, other, overlap, now)
        index.hold(slot, match)
        other.index_stamp = index.clock


def _inherit(pool: PoolState, replica: Replica, live: LiveLease, overlap_blocks: int, now: float) -> None:
    """Give a lease the work that another lease should have done for it."""
    assert live.ask is not None
    uncached = uncached_tokens(pool, live.ask, overlap_blocks, tokens_per_block(pool, live.ask))
    pairs = pairs_of(uncached, live.prompt_tokens)
    more = uncached - live.uncached_tokens
    replica.prefill_tokens += more
    replica.prefill_pairs += pairs - live.pairs
    # as the other lease's, this work was ahead of it
    live.work_ahead_tokens = max(live.work_ahead_tokens - more, 0)
    live.work_ahead_pairs = max(live.work_ahead_pairs - (pairs - live.pairs), 0.0)
    live.overlap_blocks, live.uncached_tokens, live.pairs = overlap_blocks, uncached, pairs
    if pool.latency_model.trusted:
        live.work_s = replica.ratio.value * pool.latency_model.work_s(uncached, pairs, replica.decoding)
    if live.pool == pool.name:
        tenant = pool.queue.tenant(account_of(live.ask))
        pool.queue.charge(tenant, live.length_class, more, 0, now, live.ask.project_id)


def _common(live: LiveLease, hashes: bytes) -> int:
    """Number of leading blocks that a lease's prompt and this chain have in common."""
    if live.ask is None or live.ask.prefix_hashes[:HASH_BYTES] != hashes[:HASH_BYTES]:
        return 0
    return common_blocks(live.ask.prefix_hashes, hashes)
