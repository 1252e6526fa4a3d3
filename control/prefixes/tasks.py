"""The worker's task for prefixes: sums by hour, drops, and retention.

It may run twice, late, or in two workers at once.
"""

from __future__ import annotations

import logging

import psycopg
from celery import Celery

from control.prefixes.drops import look_for_drops
from control.prefixes.metrics import PrefixMetrics
from control.prefixes.rollup import forget, roll_up
from control.prefixes.upkeep_config import PrefixUpkeepConfig

ROLL_UP = "prefixes.roll_up"
AT_START = (ROLL_UP,)
"""Run as soon as a worker starts."""

logger = logging.getLogger(__name__)


def periods_s(config: PrefixUpkeepConfig) -> dict[str, float]:
    """Seconds between two runs of the task."""
    return {ROLL_UP: config.roll_up_every_s}


def add_tasks(app: Celery, database_url: str, config: PrefixUpkeepConfig, metrics: PrefixMetrics) -> None:
    """Register the task with the worker's application."""

    @app.task(
        name=ROLL_UP, shared=False, autoretry_for=(OSError, psycopg.OperationalError), max_retries=3, retry_backoff=True
    )  # type: ignore[untyped-decorator]
    def roll_up_prefixes() -> None:
        days = config.sample_retention_days
        hours = roll_up(database_url, sample_retention_days=days)
        drops = look_for_drops(database_url, config)
        metrics.began(drops)
        deleted = forget(database_url, sample_retention_days=days, share_retention_days=config.share_retention_days)
        logger.info("prefixes: %d hours added up, %d drops, %d rows forgotten", hours, len(drops), deleted)
