"""Deletes traces of requests, events of completions, and stored texts and responses after their retention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from storage.worker_connection import connect

AT_ONCE = 10_000
"""Rows per transaction: no other statement waits for long, and an interrupted run keeps its progress."""

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
FORGET_RESPONSES = """
DELETE FROM gateway.responses WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM gateway.responses WHERE recorded_at < %s LIMIT %s))
"""
FORGET_CONVERSATIONS = """
DELETE FROM gateway.conversations WHERE id = ANY(ARRAY(
    SELECT id FROM gateway.conversations WHERE used_at < %s LIMIT %s))
"""
_ALL = (FORGET_TRACES, FORGET_EVENTS, FORGET_TEXTS, FORGET_RESPONSES, FORGET_CONVERSATIONS)


def forget_traces(database_url: str, retention_days: int) -> int:
    """Delete records older than `retention_days`; returns the number of rows. Raises psycopg.Error."""
    before = datetime.now(UTC) - timedelta(days=retention_days)
    forgotten = 0
    with connect(database_url, autocommit=True) as connection:
        for statement in _ALL:
            while deleted := connection.execute(statement, (before, AT_ONCE)).rowcount:
                forgotten += deleted
    return forgotten
