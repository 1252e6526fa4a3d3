"""Observes how long this gateway's requests for a model wait for a slot.

The router reports how long it queued each request, or that it refused it, so no further call is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

REMEMBERED_S = 2.0
"""How long an ended wait counts: while requests go elsewhere, none shows that the queue is short again."""


class QueueWatch:
    """The waits of one gateway. now: monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waiting: dict[str, dict[str, float]] = {}
        """Start of each lease's wait by model, the oldest first."""
        self._last: dict[str, tuple[float, float]] = {}
        """End and length of the last wait by model."""

    def began(self, model: str, lease_id: str) -> None:
        """Record the start of a wait for a slot."""
        self._waiting.setdefault(model, {})[lease_id] = self._now()

    def ended(self, model: str, lease_id: str, waited_s: float | None) -> None:
        """Record a wait's end. waited_s: time in the router's queue; None if unknown, because the client left."""
        waiting = self._waiting[model]
        del waiting[lease_id]
        if not waiting:
            del self._waiting[model]
        if waited_s is not None:
            self._last[model] = self._now(), waited_s

    def busy(self, model: str, longer_than_s: float) -> bool:
        """Whether a request for the model has waited longer than that, or the last one did within `REMEMBERED_S`."""
        now = self._now()
        oldest = next(iter(self._waiting.get(model, {}).values()), now)
        if now - oldest > longer_than_s:
            return True
        ended_at, waited_s = self._last.get(model, (0.0, 0.0))
        return waited_s > longer_than_s and now - ended_at < REMEMBERED_S
