"""Limits copies of requests: a number per minute, a quarter of it for one organization.

Otherwise one busy tenant would fill all copies with its own requests: candidates would be judged by them alone, and a
tenant could keep them busy at will.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

ONE_SHARE = 0.25
"""One organization's share of the copies."""
MOST_KNOWN = 10_000
"""Limit of organizations; the least recently copied are forgotten, and have their whole share again."""


class ShadowAllowance:
    """One gateway's: two token buckets, its own and an organization's, each with a minute's capacity. clock:
    monotonic seconds."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = float(per_minute)
        self._one_share = max(per_minute * ONE_SHARE, 1.0)
        self._clock = clock
        self._own = self._per_minute, clock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """An organization's remaining tokens, and the time of that figure."""

    def __len__(self) -> int:
        return len(self._left)

    def open(self, organization_id: str) -> bool:
        """Whether another copy of its requests may begin."""
        return self._now(self._own, self._per_minute) >= 1 and self._left_to(organization_id) >= 1

    def take(self, organization_id: str) -> None:
        """Count a copy that begins."""
        now_s = self._clock()
        self._own = self._now(self._own, self._per_minute) - 1, now_s
        self._left[organization_id] = self._left_to(organization_id) - 1, now_s
        self._left.move_to_end(organization_id)
        if len(self._left) > MOST_KNOWN:
            self._left.popitem(last=False)

    def _left_to(self, organization_id: str) -> float:
        known = self._left.get(organization_id)
        return self._one_share if known is None else self._now(known, self._one_share)

    def _now(self, bucket: tuple[float, float], most: float) -> float:
        left, since_s = bucket
        return min(left + (self._clock() - since_s) * most / 60, most)
