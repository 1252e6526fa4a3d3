"""The worker's task for objectives: puts the settings' objectives in force, rolls up requests, and updates the metrics.

It may run twice, late, or in two workers at once.
"""

from __future__ import annotations

import asyncio
import logging

import psycopg
from celery import Celery

from control.slo.adoption import adopt, in_force, promised_since
from control.slo.metrics import SloMetrics
from control.slo.objectives import SloConfig
from control.slo.rollup import roll_up
from control.slo.standing import LAST_RUN, counts_of, end_of, for_deployment, standings, window_counts
from storage.engine import FAILURES, connect
from storage.rows import fetch, fetchval

ROLL_UP = "slo.roll_up"
AT_START = (ROLL_UP,)
"""Run as soon as a worker starts."""

logger = logging.getLogger(__name__)


class SloUpkeep:
    """The task of one worker process."""

    def __init__(self, database_url: str, config: SloConfig, metrics: SloMetrics, *, trace_retention_days: int) -> None:
        self._database_url = database_url
        self._config = config
        self._metrics = metrics
        self._trace_retention_days = trace_retention_days
        self._adopted = False
        """Objectives are adopted once in a process: two workers with different settings would take turns forever."""

    def run(self) -> int:
        """Bring minutes and metrics up to date; returns the number of recomputed minutes. Raises FAILURES of the
        database, and psycopg.Error."""
        if not self._adopted:
            version = asyncio.run(self._adopt())
            self._adopted = True
            logger.info("objectives: version %d is in force", version)
        minutes = roll_up(
            self._database_url,
            trace_retention_days=self._trace_retention_days,
            retention_days=self._config.retention_days,
        )
        asyncio.run(self._tell())
        return minutes

    async def _adopt(self) -> int:
        connection = await connect(self._database_url, name="slipstream-slo")
        try:
            return await adopt(connection, self._config.objectives)
        finally:
            await connection.close()

    async def _tell(self) -> None:
        connection = await connect(self._database_url, name="slipstream-slo")
        try:
            _, objectives = await in_force(connection)  # another worker may have had other settings, and started later
            last_run = await fetchval(connection, LAST_RUN)
            since = await promised_since(connection)
            counts = counts_of(await fetch(connection, window_counts(end_of(last_run), since)))
        finally:
            await connection.close()
        self._metrics.tell(standings(objectives, for_deployment(counts)), last_run)


def periods_s(config: SloConfig) -> dict[str, float]:
    """Seconds between two runs of the task."""
    return {ROLL_UP: config.roll_up_every_s}


def add_tasks(app: Celery, upkeep: SloUpkeep) -> None:
    """Register the task with the worker's application."""

    @app.task(
        name=ROLL_UP,
        shared=False,
        autoretry_for=(*FAILURES, psycopg.OperationalError),
        max_retries=3,
        retry_backoff=True,
    )  # type: ignore[untyped-decorator]
    def roll_up_slo() -> None:
        minutes = upkeep.run()
        logger.info("objectives: %d minutes added up", minutes)
