"""Observes how long requests for a model wait for a slot, from this gateway's own requests.

The router reports for every request how long it held it, or that it refused it. No further call is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

REMEMBERED_S = 2.0
"""How long an ended wait still counts: while requests go elsewhere, none shows that the queue is short again."""


class QueueWatch:
    """The waits of one gateway. now: monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waiting: dict[str, dict[str, float]] = {}
        """By model, the oldest first: start of each lease's wait."""
        self._last: dict[str, tuple[float, float]] = {}
        """By model: end and length of the last wait."""

    def began(self, model: str, lease_id: str) -> None:
        """A wait for a slot begins."""
        self._waiting.setdefault(model, {})[lease_id] = self._now()

    def ended(self, model: str, lease_id: str, waited_s: float | None) -> None:
        """A wait ends. waited_s: in the router's queue; None: unknown, because the client left."""
        waiting = self._waiting[model]
        del waiting[lease_id]
        if not waiting:
            del self._waiting[model]
        if waited_s is not None:
            self._last[model] = self._now(), waited_s

    def busy(self, model: str, longer_than_s: float) -> bool:
        """Whether a request for the model waits longer than that now, or the last one did a moment ago."""
        now = self._now()
        oldest = next(iter(self._waiting.get(model, {}).values()), now)
        if now - oldest > longer_than_s:
            return True
        ended_at, waited_s = self._last.get(model, (0.0, 0.0))
        return waited_s > longer_than_s and now - ended_at < REMEMBERED_S
