"""Brings into a pool's index what an engine's KV events changed, at a cost that its messages set.

An event of a hundred bytes may stand at the end of a path of two thousand nodes, each of which is moved: thousands of
such events would keep the router from everything else for minutes. Engines that do their work never come near what is
allowed; of one that does, nothing is believed from there on to the message's end.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.core.kv_mirror import Change
from router.core.prefix_index import PrefixIndex

FREE_STEPS = 1 << 16
"""Steps of the index that any message may take: some 0.1 s. 200 requests at once with 300 nodes each."""
BYTES_PER_STEP = 16
"""One more for each of these: what a step takes, reading as many bytes takes as well."""


def apply(changes: Sequence[Change], index: PrefixIndex, slot: int, said_bytes: int) -> None:
    """One by one, in order. said_bytes: length of the messages that told of them."""
    last_step = index.steps + FREE_STEPS + said_bytes // BYTES_PER_STEP
    for change in changes:
        if index.steps > last_step:
            index.forget(slot)  # among what is left there may be removals
            return
        if change.chain is None:
            index.forget(slot)
        elif change.gone:
            index.cut(slot, index.match(change.hashes), change.blocks - 1)
        else:
            index.hold(slot, index.match(change.hashes))
