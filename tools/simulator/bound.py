"""The best hit rate that any router could reach: one cache as large as all replicas' together, managed with foresight.

Every placement spreads the blocks over caches that together hold no more, and may hold some blocks twice. So it cannot
beat one pooled cache under the optimal rule: evict the block that is needed latest (Belady 1966). A block's parent is
needed no later than the block, so the rule, with ties to the deeper block, evicts leaves first and keeps prefixes
whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from tools.simulator.arrival import Arrival

NEVER = 1 << 62


def clairvoyant_hit_rate(
    arrivals: Sequence[Arrival], capacity_tokens: int, block_tokens: int, warm_up: float = 0.0
) -> float:
    """Cached share of prompt tokens, if no request is refused and every prefix is cached once it is first seen.

    arrivals: by time. capacity_tokens: of all replicas together; 0 for unlimited. warm_up: fraction not counted.
    """
    capacity = capacity_tokens // block_tokens if capacity_tokens else NEVER
    uses: dict[bytes, list[int]] = {}
    for index, arrival in enumerate(arrivals):
        for block in arrival.blocks:
            uses.setdefault(block, []).append(index)
    for indices in uses.values():
        indices.reverse()
    held: dict[bytes, int] = {}
    furthest: list[tuple[int, int, bytes]] = []
    """(− next use, − depth, block): of blocks that are needed at the same time, the deepest goes first."""
    begin = arrivals[int(len(arrivals) * warm_up)].at_s if arrivals else 0.0
    cached = total = 0
    for arrival in arrivals:
        hits = 0
        for block in arrival.blocks:
            if block not in held:
                break
            hits += 1
        if arrival.at_s >= begin:
            cached += min(hits * block_tokens, max(arrival.prompt_tokens - 1, 0))
            total += arrival.prompt_tokens
        for depth, block in enumerate(arrival.blocks):
            later = uses[block]
            later.pop()
            following = later[-1] if later else NEVER
            held[block] = following
            heapq.heappush(furthest, (-following, -depth, block))
        while len(held) > capacity:
            following, _, block = heapq.heappop(furthest)
            if held.get(block) == -following:
                del held[block]
    return cached / total if total else 0.0
