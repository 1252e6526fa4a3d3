"""Shows the results of the worker's ledger checks in this gateway's metrics, because the worker has no such page."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import asyncpg

from contracts.background_task import BackgroundTask
from gateway.metering.metrics import MeteringMetrics
from storage.engine import FAILURES, borrow

logger = logging.getLogger(__name__)

EVERY_S = 60.0
TIMEOUT_S = 10.0
FOUND = """
SELECT (SELECT coalesce(sum(abs(prompt_drift)), 0)::float8 FROM gateway.reconciliations
         WHERE window_from > now() - interval '2 days' AND window_until > now() - interval '1 day'),
       (SELECT coalesce(sum(abs(completion_drift)), 0)::float8 FROM gateway.reconciliations
         WHERE window_from > now() - interval '2 days' AND window_until > now() - interval '1 day'),
       (SELECT (wrong_hours + wrong_days + wrong_amounts)::float8 FROM gateway.usage_verifications
         ORDER BY checked_at DESC LIMIT 1)
"""


class DriftWatch:
    """A background task of one gateway instance."""

    def __init__(self, pool: asyncpg.Pool[Any], metrics: MeteringMetrics, every_s: float = EVERY_S) -> None:
        self._pool = pool
        self._metrics = metrics
        self._task = BackgroundTask.every(every_s, self._look, "drift watch", at_once=True)

    def start(self) -> None:
        """Check now and every `every_s`."""
        self._task.start()

    async def stop(self) -> None:
        """Stop checking. Idempotent."""
        await self._task.stop()

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S), borrow(self._pool) as connection:
                prompt, completion, wrong = await connection.fetchrow(FOUND)
        except FAILURES as error:
            logger.info("the results of the ledger's checks are unknown: %r", error)
            return
        self._metrics.drift_tokens.labels("prompt").set(prompt)
        self._metrics.drift_tokens.labels("completion").set(completion)
        self._metrics.wrong_totals.set(wrong or 0)
