"""Days of the ledger: created ahead of time, dropped whole after their retention. Called by the worker's scheduled
task.

A row's day never waits for this task: a gateway that finds no partition creates it (`ledger.py`). Tables are created
and dropped by functions of the database that run with their owner's rights: the application's own role cannot.
"""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta

import psycopg

from storage.worker_connection import connect

logger = logging.getLogger(__name__)

DAYS = """
SELECT to_date(right(relname, 8), 'YYYYMMDD') FROM pg_class
 WHERE relnamespace = 'gateway'::regnamespace AND relkind = 'r' AND relname ~ '^usage_events_[0-9]{8}$'
 ORDER BY 1
"""


def ensure_days(database_url: str, ahead_days: int) -> list[date]:
    """Create the partitions of today and of `ahead_days` more; returns the new ones. Raises psycopg.Error."""
    today = datetime.now(UTC).date()
    with connect(database_url, autocommit=True) as connection:
        made = []
        for day in (today + timedelta(days=ahead) for ahead in range(ahead_days + 1)):
            row = connection.execute("SELECT gateway.ensure_usage_day(%s)", (day,)).fetchone()
            if row is not None and row[0]:
                made.append(day)
    return made


def retire_days(database_url: str, retention_days: int) -> list[date]:
    """Drop the days that ended more than `retention_days` ago; returns them. Their roll-ups stay.

    A day that got rows within that time stays as well: they came late, or a clock was wrong. Dropped days are recorded
    in `usage_retired_days` and in the audit log. Raises psycopg.Error; a day that is being read for longer than the
    database waits stays, with those after it, until the next run.
    """
    retired = []
    with connect(database_url, autocommit=True) as connection:
        for (day,) in connection.execute(DAYS).fetchall():
            try:
                row = connection.execute("SELECT gateway.retire_usage_day(%s, %s)", (day, retention_days)).fetchone()
            except psycopg.errors.LockNotAvailable:
                logger.info("ledger: the day %s is past its retention but being read; the next run retries", day)
                break
            if row is not None and row[0]:
                retired.append(day)
                logger.info("ledger: the day %s is past its retention and was dropped", day)
    return retired
