"""Limits the copies of requests per minute, and one organization to a quarter of them.

Otherwise, one busy tenant would fill all copies with its own requests: candidates would be judged by these alone, and a
tenant could keep candidates busy at will.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.limits.rate_buckets import RateBuckets

ONE_SHARE = 0.25
"""One organization's share of the copies."""


class ShadowAllowance:
    """One gateway's buckets: its own and each organization's, with a minute's capacity. clock: monotonic seconds."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        one_share = max(per_minute * ONE_SHARE, 1.0)
        self._own = RateBuckets(per_minute / 60, per_minute, clock)
        self._each = RateBuckets(one_share / 60, one_share, clock)

    def open(self, organization_id: str) -> bool:
        """Whether another copy of the organization's requests may begin."""
        return not self._own.wait_s("") and not self._each.wait_s(organization_id)

    def take(self, organization_id: str) -> None:
        """Count a copy that begins."""
        self._own.take("")
        self._each.take(organization_id)
