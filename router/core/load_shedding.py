"""Chooses the requests to refuse if a queue cannot meet all deadlines: the largest work, not the latest arrival.

Moore and Hodgson 1968 (An n job, one machine sequencing algorithm): go through the requests by deadline; whenever one
cannot be in time, give up the largest of the requests up to and including it. On one machine of constant rate, this
keeps the most promises. Here the machine is the pool's time for prompts, and three rules come before the largest work:

- A tenant that has more than its part of the queue loses its own requests first.
- Work weighs more if its tenant has recently received more for its share.
- A prompt length of which hardly any requests were served recently is spared; otherwise the longest prompts would never
  be served.

The weight is a price that rises with overdraft, like Lagrange multipliers of the shares (Neely 2010, Stochastic Network
Optimization, chapter 4): in a lasting overload, shares hold, and within them most promises.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType

from router.core.state import QueuedRequest

EARLY = 0.3
"""Share of the promise by which every request should begin early: a request that must go to the next free engine cannot
wait for the one that has its prompt cached, and computing the prompt again takes the time of others."""
EFFICIENCY = 0.9
"""Share of the pool's time for prompts that the choice relies on."""
OVER_PART = 1.5
"""Factor on a tenant's fair part of the queued work, beyond which its own requests are given up first."""
SPARED_BELOW = 0.2
"""Share of the recent prompts of a length that must have been served before prompts of that length are given up."""
SERVED_STEP = 0.02
SHARE_WEIGHT = 30.0
"""Rate at which the price of a tenant's work rises with its recent grants: the work of a tenant that got a tenth more
than its share is given up before twenty times as much work of a tenant that got exactly its share."""
MIN_WORK_S = 1e-9
NOTHING_GIVEN: Mapping[str, float] = MappingProxyType({})
PAUSE_S_PER_ASK = 0.0001
"""Least pause between two passes over the queue, per queued request, which bounds the cost at any size."""


class Served:
    """The share of each length's recent requests in one pool that was served."""

    def __init__(self) -> None:
        self._parts: dict[int, float] = {}

    def count(self, length: int, granted: bool) -> None:
        """Count a request of this length that was granted or refused."""
        part = self._parts.get(length, 1.0)
        self._parts[length] = part + SERVED_STEP * (granted - part)

    def spares(self, length: int) -> bool:
        """Whether too few requests of this length were served."""
        # relative to the best served length: if hardly any request is served, sparing all would serve all too late
        return self._parts.get(length, 1.0) < SPARED_BELOW * max(self._parts.values(), default=1.0)


def begin_by(waiting: QueuedRequest) -> float:
    """Latest time at which an engine should get the request, early enough that the engine can be chosen."""
    return max(waiting.start_by - EARLY * waiting.ttft_slo_s, waiting.asked_at)


def given_up(
    asks: Iterable[QueuedRequest],
    backlog_s: float,
    rate: float,
    served: Served,
    now: float,
    over_share: Container[str] = (),
    parts: Mapping[str, float] = NOTHING_GIVEN,
    spared: Container[QueuedRequest] = (),
) -> list[QueuedRequest]:
    """The requests that must be given up so that the others can be in time.

    backlog_s: prefill before any of them. rate: seconds of prefill that the pool does per second. over_share: tenants
    that already hold more than their share. parts: recent grants of the tenants, see `FairQueue.parts`; a tenant
    without an entry has 1. spared: requests that stay in any case. Requests that are already late also stay, because
    their tenant's turn comes anyway; they count in their tenant's part of the queue.
    """
    queued = list(asks)
    line = sorted((each for each in queued if each.start_by >= now), key=lambda each: (begin_by(each), each.number))
    over = _over_part(queued)
    rate *= EFFICIENCY
    candidates: list[tuple[bool, float, int, QueuedRequest]] = []
    chosen: list[QueuedRequest] = []
    before_s = backlog_s
    for waiting in line:
        if not waiting.returned and waiting not in spared and not served.spares(waiting.length):
            name = waiting.ask.organization_id
            part = parts.get(name, 1.0)
            kept = part < 1.0 or (name not in over and name not in over_share)
            heapq.heappush(candidates, (kept, -_price(waiting.work_s, part), waiting.number, waiting))
        latest = max(begin_by(waiting), waiting.asked_at + PAUSE_S_PER_ASK)
        while candidates and now + before_s / rate > latest:
            largest = heapq.heappop(candidates)[3]
            chosen.append(largest)
            if largest is waiting:
                break
            before_s -= largest.work_s
        else:
            before_s += waiting.work_s
    return chosen


def _price(work_s: float, part: float) -> float:
    """Value, as a logarithm, of giving up work of a tenant whose recent grants are this part of its share."""
    return math.log(max(work_s, MIN_WORK_S)) + SHARE_WEIGHT * max(part - 1.0, 0.0)


def _over_part(queued: list[QueuedRequest]) -> set[str]:
    """Tenants with far more than their part of the queued work."""
    work: dict[str, float] = {}
    shares: dict[str, float] = {}
    for waiting in queued:
        name = waiting.ask.organization_id
        work[name] = work.get(name, 0.0) + waiting.work_s
        shares[name] = waiting.ask.share if waiting.ask.share > 0 else 1.0
    if len(work) < 2:
        return set()
    fair = OVER_PART * sum(work.values()) / sum(shares.values())
    return {name for name, seconds in work.items() if seconds > fair * shares[name]}
