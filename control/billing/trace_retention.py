"""Forgets the records of single requests, what became of their completions and what was stored of their texts, when
their retention is over.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from storage.worker_connection import connect

AT_ONCE = 10_000
"""Rows deleted in one transaction: nobody waits behind it, and an interrupted run has kept what it did."""

FORGET_TRACES = """
DELETE FROM gateway.request_traces WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM gateway.request_traces WHERE recorded_at < %s LIMIT %s))
"""
FORGET_EVENTS = """
DELETE FROM gateway.completion_events WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM gateway.completion_events WHERE recorded_at < %s LIMIT %s))
"""
FORGET_TEXTS = """
DELETE FROM gateway.completion_texts WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM gateway.completion_texts WHERE recorded_at < %s LIMIT %s))
"""


def forget_traces(database_url: str, retention_days: int) -> int:
    """Delete what was recorded more than `retention_days` ago; returns how many rows. Raises psycopg.Error."""
    before = datetime.now(UTC) - timedelta(days=retention_days)
    forgotten = 0
    with connect(database_url, autocommit=True) as connection:
        for statement in (FORGET_TRACES, FORGET_EVENTS, FORGET_TEXTS):
            while deleted := connection.execute(statement, (before, AT_ONCE)).rowcount:
                forgotten += deleted
    return forgotten
