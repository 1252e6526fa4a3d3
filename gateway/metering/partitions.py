"""Days of the ledger: made ahead of time, dropped whole when retention is over. Called by the worker's scheduled task.

A row's day never waits for this task: a gateway that finds no partition makes it (`ledger.py`).
"""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta

import psycopg
from psycopg import sql

logger = logging.getLogger(__name__)

LOCK_TIMEOUT = "5s"
"""Dropping waits no longer for somebody who reads the ledger; the next run tries again."""

DAYS = """
SELECT child.relname, to_date(right(child.relname, 8), 'YYYYMMDD'), part.inhdetachpending
  FROM pg_class child LEFT JOIN pg_inherits part ON part.inhrelid = child.oid
 WHERE child.relnamespace = 'gateway'::regnamespace AND child.relkind = 'r'
   AND child.relname ~ '^usage_events_[0-9]{8}$'
 ORDER BY 2
"""


def ensure_days(database_url: str, ahead_days: int, *, connect_timeout_s: int = 10) -> list[date]:
    """Make the partitions of today and of `ahead_days` more; returns those that were new. Raises psycopg.Error."""
    today = datetime.now(UTC).date()
    with psycopg.connect(database_url, connect_timeout=connect_timeout_s, autocommit=True) as connection:
        made = []
        for day in (today + timedelta(days=ahead) for ahead in range(ahead_days + 1)):
            row = connection.execute("SELECT gateway.ensure_usage_day(%s)", (day,)).fetchone()
            if row is not None and row[0]:
                made.append(day)
    return made


def retire_days(database_url: str, retention_days: int, *, connect_timeout_s: int = 10) -> list[date]:
    """Drop the days that ended more than `retention_days` ago; returns them. Their roll-ups stay.

    A day in which anything was recorded within that time stays as well: it came late, or a clock was wrong. Raises
    psycopg.Error; whatever was begun is finished by the next run.
    """
    before = datetime.now(UTC).date() - timedelta(days=retention_days)
    retired = []
    with psycopg.connect(database_url, connect_timeout=connect_timeout_s, autocommit=True) as connection:
        connection.execute(sql.SQL("SET lock_timeout = {}").format(LOCK_TIMEOUT))
        for name, day, pending in connection.execute(DAYS).fetchall():
            if pending is not None and not _is_over(connection, name, day, before):
                continue
            _drop(connection, name, day, pending)
            retired.append(day)
    return retired


def _is_over(connection: psycopg.Connection[tuple[object, ...]], name: str, day: date, before: date) -> bool:
    """Whether a day may go; what it held is noted first."""
    if day >= before:
        return False
    table = sql.Identifier("gateway", name)
    late = connection.execute(
        sql.SQL("SELECT 1 FROM {} WHERE recorded_at >= %s LIMIT 1").format(table), (before,)
    ).fetchone()
    if late is not None:
        return False
    connection.execute(
        sql.SQL(
            "INSERT INTO gateway.usage_retired_days (day, rows, amount_micro) "
            "SELECT %s, count(*), coalesce(sum(amount_micro), 0) FROM {} ON CONFLICT DO NOTHING"
        ).format(table),
        (day,),
    )
    return True


def _drop(connection: psycopg.Connection[tuple[object, ...]], name: str, day: date, pending: bool | None) -> None:
    """Detach and drop. pending: half detached by a run that was interrupted; None: detached, but not dropped."""
    table = sql.Identifier("gateway", name)
    if pending is not None:
        how = sql.SQL("FINALIZE" if pending else "CONCURRENTLY")
        # Concurrently: neither readers nor the gateways that write today's rows are held up.
        connection.execute(sql.SQL("ALTER TABLE gateway.usage_events DETACH PARTITION {} {}").format(table, how))
    connection.execute(sql.SQL("DROP TABLE {}").format(table))
    logger.info("ledger: the day %s is over its retention and was dropped", day)
