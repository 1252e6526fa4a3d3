"""Limits the events that a project, and all projects of an organization together, may report. It only bounds work:
metered figures come from the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from contracts.errors import RateLimited
from contracts.generation import Caller
from gateway.limits.rate_buckets import RateBuckets

BURST_S = 10.0
"""Seconds' worth of events that may be reported at once, after silence."""
ORGANIZATION = 2
"""The organization's rate as a multiple of one project's: it may have many projects."""


class EventRate:
    """The buckets of one gateway."""

    def __init__(self, events_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        def buckets(per_second: float) -> RateBuckets:
            return RateBuckets(per_second, per_second * BURST_S, clock)

        self._per_second = events_per_second
        self._of_project = buckets(events_per_second)
        self._of_organization = buckets(events_per_second * ORGANIZATION)

    def take(self, caller: Caller) -> None:
        """Count one event. Raises RateLimited for one too many, which is not counted."""
        project_s = self._of_project.wait_s(caller.project_id)
        wait_s = max(project_s, self._of_organization.wait_s(caller.organization_id))
        if wait_s:
            name, per_second = f"Project {caller.project_id}", self._per_second
            if wait_s > project_s:
                name, per_second = "Your organization", self._per_second * ORGANIZATION
            raise RateLimited(
                f"{name} reports more than {per_second:g} events a second. Try again in {wait_s:.2g} s, or leave the "
                "event out: completions are served without it.",
                retry_after_s=wait_s,
            )
        self._of_project.take(caller.project_id)
        self._of_organization.take(caller.organization_id)
