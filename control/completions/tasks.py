"""The worker's task for completions: adds up their outcomes by hour, day and week.

It may run twice, late, or in two workers at once.
"""

from __future__ import annotations

import logging

import psycopg
from celery import Celery

from control.completions.rollup import roll_up
from control.completions.upkeep_config import CompletionUpkeepConfig

ROLL_UP = "completions.roll_up"
LONGEST_S = 5.0
"""Limit of one run, which still finishes a few hours: the worker runs its tasks one after another."""
AT_START = (ROLL_UP,)
"""Run as soon as a worker starts."""

logger = logging.getLogger(__name__)


def periods_s(config: CompletionUpkeepConfig) -> dict[str, float]:
    """Seconds between two runs of the task."""
    return {ROLL_UP: config.roll_up_every_s}


def add_tasks(app: Celery, database_url: str, config: CompletionUpkeepConfig, *, trace_retention_days: int) -> None:
    """Register the task with the worker's application."""

    @app.task(
        name=ROLL_UP, shared=False, autoretry_for=(OSError, psycopg.OperationalError), max_retries=3, retry_backoff=True
    )  # type: ignore[untyped-decorator]
    def roll_up_completions() -> None:
        hours = roll_up(
            database_url,
            trace_retention_days=trace_retention_days,
            retention_days=config.retention_days,
            longest_s=LONGEST_S,
        )
        logger.info("completions: %d hours added up", hours)
