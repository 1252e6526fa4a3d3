"""Creates partitions for the ledger's days ahead of time, and drops them after their retention. A task of the worker
calls it.

A row's day never waits for this task: a gateway that finds no partition creates it (`ledger.py`). Functions of the
database create and drop tables with their owner's rights, which the application's role lacks.
"""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta

import psycopg

from control.billing.rollup import roll_up
from storage.worker_connection import connect

logger = logging.getLogger(__name__)

DAYS = """
SELECT day, day < (now() AT TIME ZONE 'UTC')::date - %s AS old
  FROM pg_class CROSS JOIN LATERAL to_date(right(relname, 8), 'YYYYMMDD') AS day
 WHERE relnamespace = 'gateway'::regnamespace AND relkind = 'r' AND relname ~ '^usage_events_[0-9]{8}$'
 ORDER BY 1
"""


def ensure_days(database_url: str, ahead_days: int) -> list[date]:
    """Create the partitions of today and of `ahead_days` more, and return the new ones. Raises psycopg.Error."""
    today = datetime.now(UTC).date()
    with connect(database_url, autocommit=True) as connection:
        created = []
        for day in (today + timedelta(days=ahead) for ahead in range(ahead_days + 1)):
            row = connection.execute("SELECT gateway.ensure_usage_day(%s)", (day,)).fetchone()
            if row is not None and row[0]:
                created.append(day)
    return created


def retire_days(database_url: str, retention_days: int) -> list[date]:
    """Drop the days that ended more than `retention_days` ago, and return them. Their roll-ups stay.

    A day that got rows within that time stays as well: the rows were late, or a clock was wrong. Dropped days are
    recorded in `usage_retired_days` and in the audit log. Raises psycopg.Error. A day that is read for longer than the
    database waits stays until the next run, and so do later days.
    """
    retired = []
    with connect(database_url, autocommit=True) as connection:
        days = connection.execute(DAYS, (retention_days,)).fetchall()
        if any(old for _, old in days):
            roll_up(database_url)  # after a long stop, the totals may lack an old day's last rows
        for day, _ in days:
            try:
                row = connection.execute("SELECT gateway.retire_usage_day(%s, %s)", (day, retention_days)).fetchone()
            except psycopg.errors.LockNotAvailable:
                logger.info("ledger: the day %s is past its retention but being read; the next run retries", day)
                break
            if row is not None and row[0]:
                retired.append(day)
                logger.info("ledger: the day %s is past its retention and was dropped", day)
    return retired
