"""The worker's task for shadowing: deletes pairs and texts after their retention. It may run twice, late, or in two
workers."""

from __future__ import annotations

import logging

import psycopg
from celery import Celery

from control.shadow.retention import forget
from control.shadow.upkeep_config import ShadowUpkeepConfig

FORGET = "shadow.forget"
PERIODS_S = {FORGET: 3_600.0}
"""Seconds between two runs of the task."""

logger = logging.getLogger(__name__)


def add_tasks(app: Celery, database_url: str, config: ShadowUpkeepConfig) -> None:
    """Register the task with the worker's application."""

    @app.task(
        name=FORGET, shared=False, autoretry_for=(OSError, psycopg.OperationalError), max_retries=3, retry_backoff=True
    )  # type: ignore[untyped-decorator]
    def forget_pairs() -> None:
        deleted = forget(
            database_url,
            pair_retention_days=config.pair_retention_days,
            text_retention_days=config.text_retention_days,
        )
        logger.info("shadow: %d pairs and reviews forgotten", deleted)
