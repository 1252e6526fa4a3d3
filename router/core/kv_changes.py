"""Applies an engine's KV events to a pool's index, at a cost that is bounded by the size of its messages.

An event of a hundred bytes may be at the end of a path of two thousand nodes, each of which is moved: thousands of such
events would block the router for minutes. Working engines never come near the limit; beyond it, the rest of a message
is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.core.kv_mirror import Change
from router.core.prefix_index import PrefixIndex

FREE_STEPS = 1 << 16
"""Index steps that any message may take, in some 0.1 s: 200 concurrent requests with 300 nodes each."""
BYTES_PER_STEP = 16
"""Bytes of a message that allow one more step, because reading them takes as long as a step."""


def apply(changes: Sequence[Change], index: PrefixIndex, slot: int, said_bytes: int) -> None:
    """Apply the changes in order. said_bytes: length of the messages that carried them."""
    last_step = index.steps + FREE_STEPS + said_bytes // BYTES_PER_STEP
    for change in changes:
        if index.steps > last_step:
            index.forget(slot)  # the remaining changes may contain removals
            return
        if change.chain is None:
            index.forget(slot)
        elif change.gone:
            index.cut(slot, index.match(change.hashes), change.blocks - 1)
        else:
            index.hold(slot, index.match(change.hashes))
