"""How many events a project may report. Pure but for the clock it is given."""

from __future__ import annotations

import time
from collections.abc import Callable

from contracts.errors import RateLimited

BURST_S = 10.0
"""So many seconds' worth at once, after silence."""
MOST_PROJECTS = 10_000
"""Remembered; beyond them those that have their whole burst again are forgotten, which changes nothing for them."""


class EventRate:
    """A bucket for each project, in one gateway's memory: what is metered is in the database, this only bounds work."""

    def __init__(self, events_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = events_per_second
        self._burst = max(1.0, events_per_second * BURST_S)
        self._clock = clock
        self._full_at_s: dict[str, float] = {}
        """When the project's bucket is full again, if nothing comes."""

    def take(self, project_id: str) -> None:
        """One event. Raises RateLimited when there have been too many; that event costs nothing."""
        now_s = self._clock()
        full_at_s = max(self._full_at_s.get(project_id, now_s), now_s) + 1 / self._per_second
        wait_s = full_at_s - now_s - self._burst / self._per_second
        if wait_s > 1e-9:
            raise RateLimited(
                f"Project {project_id} reports more than {self._per_second:g} events a second. Try again in "
                f"{wait_s:.2g} s, or leave the event out: completions are served without it.",
                retry_after_s=wait_s,
            )
        if project_id not in self._full_at_s and len(self._full_at_s) >= MOST_PROJECTS:
            self._full_at_s = {project: at_s for project, at_s in self._full_at_s.items() if at_s > now_s}
        self._full_at_s[project_id] = full_at_s
