"""Chooses the asks to refuse when a queue cannot meet all deadlines: the largest work, not the latest arrival.

Moore and Hodgson 1968 (An n job, one machine sequencing algorithm): go through the asks by deadline; whenever one
cannot be in time, give up the largest of those up to it, itself included. On one machine of constant rate this keeps
the most promises. Here the machine is the pool's time for prompts, and three rules come before the largest work. A
tenant that has more than its part of the queue loses its own asks first. Work weighs more, the more its tenant was
given lately for its share. And a prompt length of which hardly any asks were served lately is spared, or the longest
would never be served. The weight is a price that rises with overdraft, as Lagrange multipliers of the shares would
(Neely 2010, Stochastic Network Optimization, chapter 4): in a lasting overload shares hold, and within them most
promises.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType

from router.core.state import QueuedRequest

EARLY = 0.3
"""Share of the promise by which every ask should begin early: an ask that must go to the next free engine cannot wait
for the one that has the prompt cached, and computing it again takes the time of others."""
EFFICIENCY = 0.9
"""Share of the pool's time for prompts that is counted on."""
OVER_PART = 1.5
"""Factor on a tenant's fair part of the queued work, beyond which its own asks are given up first."""
SPARED_BELOW = 0.2
"""Prompts of a length are not given up while less than this share of them has been served lately."""
SERVED_STEP = 0.02
SHARE_WEIGHT = 30.0
"""Rate at which the price of a tenant's work rises with its recent grants: a tenant that was given a tenth more than
its share gives up its own before twenty times as much of one that was given exactly its share."""
MIN_WORK_S = 1e-9
NOTHING_GIVEN: Mapping[str, float] = MappingProxyType({})
PAUSE_S_PER_ASK = 0.0001
"""Least pause between two passes over the queue, times its length: bounds the cost at any size."""


class Served:
    """Served share of the asks of each length lately. One per pool."""

    def __init__(self) -> None:
        self._parts: dict[int, float] = {}

    def count(self, length: int, granted: bool) -> None:
        """One ask of this length was granted, or refused."""
        part = self._parts.get(length, 1.0)
        self._parts[length] = part + SERVED_STEP * (granted - part)

    def spares(self, length: int) -> bool:
        """Too few asks of this length were served."""
        # relative to the best served length: where hardly any ask is served, sparing all would give up none, and serve
        # all too late
        return self._parts.get(length, 1.0) < SPARED_BELOW * max(self._parts.values(), default=1.0)


def begin_by(waiting: QueuedRequest) -> float:
    """Latest time at which an engine should have it: early enough that the engine can be chosen."""
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
    """The asks that must go so that the others can be in time.

    backlog_s: prefill before any of them. rate: seconds of prefill the pool does per second. over_share: tenants that
    hold more than their share already. parts: recent grants of the tenants, see `FairQueue.parts`; a tenant without an
    entry has 1. spared: asks that stay in any case. Asks that are late already stay too, for their tenant's turn comes
    anyway; they count for their tenant's part of the queue.
    """
    waiting = list(asks)
    line = sorted((one for one in waiting if one.start_by >= now), key=lambda one: (begin_by(one), one.number))
    over = _over_part(waiting)
    rate *= EFFICIENCY
    candidates: list[tuple[bool, float, int, QueuedRequest]] = []
    gone: list[QueuedRequest] = []
    before_s = backlog_s
    for one in line:
        if not one.returned and one not in spared and not served.spares(one.length):
            name = one.ask.organization_id
            part = parts.get(name, 1.0)
            kept = part < 1.0 or (name not in over and name not in over_share)
            heapq.heappush(candidates, (kept, -_price(one.work_s, part), one.number, one))
        latest = max(begin_by(one), one.asked_at + PAUSE_S_PER_ASK)
        while candidates and now + before_s / rate > latest:
            largest = heapq.heappop(candidates)[3]
            gone.append(largest)
            if largest is one:
                break
            before_s -= largest.work_s
        else:
            before_s += one.work_s
    return gone


def _price(work_s: float, part: float) -> float:
    """Value of giving up work of a tenant that was given this part, as a logarithm."""
    return math.log(max(work_s, MIN_WORK_S)) + SHARE_WEIGHT * max(part - 1.0, 0.0)


def _over_part(waiting: list[QueuedRequest]) -> set[str]:
    """Tenants with far more than their part of the queued work."""
    work: dict[str, float] = {}
    shares: dict[str, float] = {}
    for one in waiting:
        name = one.ask.organization_id
        work[name] = work.get(name, 0.0) + one.work_s
        shares[name] = one.ask.share if one.ask.share > 0 else 1.0
    if len(work) < 2:
        return set()
    fair = OVER_PART * sum(work.values()) / sum(shares.values())
    return {name for name, seconds in work.items() if seconds > fair * shares[name]}
