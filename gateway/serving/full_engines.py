"""Logs refusals by engines that are full or whose provider's limit is reached.

A customer gets a retry delay. Only the operator can fix the cause, and needs the engine's message for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from contracts.errors import Overloaded, SlipstreamError
from gateway.serving.attempt import Attempt
from gateway.serving.observers import RequestObserver

logger = logging.getLogger(__name__)

LOG_EVERY_S = 60.0
"""Interval between a pool's lines, because a full pool refuses many requests a second for the same reason."""


class FullEngines(RequestObserver):
    """Logs at most one line per pool and minute. now: monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}
        """Number of refusals that were not logged, by pool."""

    def failed(self, attempt: Attempt, error: SlipstreamError) -> None:
        """Log an engine's refusal with the engine's message."""
        engine = attempt.failed_engine
        if not isinstance(error, Overloaded) or engine is None:
            return
        pool, now = engine.pool, self._now()
        if pool in self._logged_at and now - self._logged_at[pool] < LOG_EVERY_S:
            self._unlogged[pool] = self._unlogged.get(pool, 0) + 1
            return
        self._logged_at[pool] = now
        logger.warning(
            "pool %s: %s refused request %s: %s; %d more since the last such line",
            pool,
            engine.replica_id,
            attempt.request.request_id,
            error,
            self._unlogged.pop(pool, 0),
        )
