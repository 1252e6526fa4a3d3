"""Forgets the records of single requests (`gateway.request_traces`) when their retention is over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg

AT_ONCE = 10_000
"""Rows deleted in one transaction: nobody waits behind it, and an interrupted run has kept what it did."""

FORGET = """
DELETE FROM gateway.request_traces WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM gateway.request_traces WHERE recorded_at < %s LIMIT %s))
"""


def forget_traces(database_url: str, retention_days: int, *, connect_timeout_s: int = 10) -> int:
    """Delete what was recorded more than `retention_days` ago; returns how many rows. Raises psycopg.Error."""
    before = datetime.now(UTC) - timedelta(days=retention_days)
    forgotten = 0
    with psycopg.connect(database_url, connect_timeout=connect_timeout_s, autocommit=True) as connection:
        while deleted := connection.execute(FORGET, (before, AT_ONCE)).rowcount:
            forgotten += deleted
    return forgotten
