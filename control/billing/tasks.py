"""The worker's tasks for the ledger: roll-ups, future days, retention, verification, reconciliation.

Each may run twice, late, or in two workers at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import psycopg
from celery import Celery

from control.billing.engine_metrics import EngineCounterMetrics
from control.billing.partitions import ensure_days, retire_days
from control.billing.reconciliation import EngineCounters, reconcile
from control.billing.rollup import roll_up
from control.billing.trace_retention import forget_traces
from control.billing.upkeep_config import UpkeepConfig
from control.billing.verification import last_days, verify
from engines.http.keys import EngineKeys

logger = logging.getLogger(__name__)

ROLL_UP = "usage.roll_up"
DAYS = "usage.days"
VERIFY = "usage.verify"
RECONCILE = "usage.reconcile"
REST = 10.0
"""Limits roll-ups to a tenth of the time, however large the hours have become (see `roll_up`)."""
AT_START = (DAYS, ROLL_UP, RECONCILE)
"""Tasks that run when a worker starts."""
_RETRIED = {
    "shared": False,
    "autoretry_for": (OSError, psycopg.OperationalError),
    "max_retries": 3,
    "retry_backoff": True,
}


def periods_s(config: UpkeepConfig, roll_up_every_s: float) -> dict[str, float]:
    """Interval of each task."""
    return {
        ROLL_UP: roll_up_every_s,
        DAYS: config.days_every_s,
        VERIFY: config.verify_every_s,
        RECONCILE: config.reconcile_every_s,
    }


def add_tasks(
    app: Celery, database_url: str, keys: Callable[[], EngineKeys], config: UpkeepConfig, metrics: EngineCounterMetrics
) -> None:
    """Register the tasks. keys: returns the keys of engines."""

    @app.task(name=ROLL_UP, **_RETRIED)  # type: ignore[untyped-decorator]
    def roll_up_usage() -> int:
        rows = roll_up(database_url, rest=REST)
        logger.debug("usage by hour and day is up to date: %d rows written", rows)
        return rows

    @app.task(name=DAYS, **_RETRIED)  # type: ignore[untyped-decorator]
    def keep_days() -> None:
        created = ensure_days(database_url, config.days_ahead)
        retired = retire_days(database_url, config.retention_days)
        forgotten = forget_traces(database_url, config.trace_retention_days)
        logger.info(
            "ledger: %d future days created, %d past their retention dropped; %d traces and completion events deleted",
            len(created),
            len(retired),
            forgotten,
        )

    @app.task(name=VERIFY, **_RETRIED)  # type: ignore[untyped-decorator]
    def verify_usage() -> None:
        found = verify(database_url, *last_days(config.verify_days))
        if found.right:
            logger.info("usage of %s to %s verified: %d attempts", found.from_day, found.until_day, found.rows)
        else:
            logger.error("usage does not agree with its events, see docs/runbooks/drift.md: %s", found)

    @app.task(name=RECONCILE, **_RETRIED)  # type: ignore[untyped-decorator]
    def reconcile_usage() -> int:
        found = reconcile(
            database_url,
            EngineCounters(keys),
            window_s=config.window_s,
            settle_s=config.settle_s,
            sampled=metrics.sampled,
        )
        return len(found)
