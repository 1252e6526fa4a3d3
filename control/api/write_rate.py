"""Limits the rate of an organization's changes. Each change is a row of the audit log, which is never shortened."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from contracts.errors import RateLimited
from control.api.principal import Principal
from gateway.limits.rate_buckets import RateBuckets

BURST_S = 10.0
"""Burst after a pause, in seconds of the rate: a program such as Terraform makes all its changes at once, and then
none."""
DAY_S = 86_400.0


class WriteRate:
    """The rate limits of one gateway."""

    def __init__(self, per_second: float, per_day: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._per_day = per_day
        self._of_second = RateBuckets(per_second, per_second * BURST_S, clock)
        self._of_day = RateBuckets(per_day / DAY_S, per_day, clock)

    def take(self, principal: Principal) -> None:
        """Count one change. Raises RateLimited if there were too many, without counting it. Operators have no limit."""
        self._take(principal, principal.organization_id, "Your organization has")

    def take_of_member(self, principal: Principal) -> None:
        """Count a member's change of its own account, such as a sign-in, or a removal. Each member has a separate rate,
        so that it can sign in and revoke keys while programs of its organization exhaust the organization's rate."""
        self._take(principal, principal.id, "You have")

    def _take(self, principal: Principal, name: UUID, who_has: str) -> None:
        if principal.operator:
            return
        wait_s, of_day_s = self._of_second.wait_s(name), self._of_day.wait_s(name)
        if of_day_s:
            raise RateLimited(
                f"{who_has} made {self._per_day} changes within a day, the limit of one gateway "
                f"(gateway.admin.organization_writes_per_day). Try again in {of_day_s:.2g} s, or ask the "
                "deployment's operator for more.",
                retry_after_s=of_day_s,
            )
        if wait_s:
            raise RateLimited(
                f"{who_has} made more than {self._per_second:g} changes a second "
                f"(gateway.admin.organization_writes_per_second). Try again in {wait_s:.2g} s.",
                retry_after_s=wait_s,
            )
        self._of_second.take(name)
        self._of_day.take(name)
