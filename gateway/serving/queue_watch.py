"""How long requests for a model wait for a place, as far as this gateway's own requests tell.

The router says it of every request: how long it held it, or that it turned it away. Nothing else is asked of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

REMEMBERED_S = 2.0
"""How long a wait that has ended still tells: while requests go elsewhere none comes to tell that it is over."""


class QueueWatch:
    """Of one gateway. now: monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waiting: dict[str, dict[str, float]] = {}
        """By model, the oldest first: since when each lease is waited for."""
        self._last: dict[str, tuple[float, float]] = {}
        """By model: when the last wait ended, and how long it was."""

    def began(self, model: str, lease_id: str) -> None:
        """A place is asked for."""
        self._waiting.setdefault(model, {})[lease_id] = self._now()

    def ended(self, model: str, lease_id: str, waited_s: float | None) -> None:
        """No longer. waited_s: in the router's queue; None: nobody knows, for it was left."""
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
