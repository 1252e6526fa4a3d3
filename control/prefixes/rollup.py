"""Recomputes the hourly sums of the samples.

A run replaces whole hours, never adds to them, so running it twice, late, or from two workers at once changes nothing.
A sample belongs to the hour in which its request arrived, and may come after a long answer or a database outage. A run
recomputes the newest stored hour and those after it, in an hour's first minutes also the hour before, and every earlier
hour with a sample recorded since then. The newest hour began before the last run, so none is missed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from contracts.dated_request_id import first_at
from storage.calendar import hour_of
from storage.worker_connection import Connection, connect

LOCK_ID = 0x70726673
"""Key of the advisory lock, the bytes of `prfs`."""
LATE = timedelta(minutes=10)
HOUR = timedelta(hours=1)
AT_ONCE = 10_000
"""Rows deleted in one transaction."""

NEWEST = "SELECT max(hour) FROM gateway.prefix_shares"
OLDEST_SAMPLE = "SELECT min(request_id) FROM gateway.prefix_samples WHERE request_id >= %s"
# Like `dated_request_id.arrived_at_s`; ids outside these bounds may have no digits there.
TOUCHED = """
SELECT DISTINCT to_timestamp(('x' || substr(request_id, 5, 12))::bit(48)::bigint / 3600000 * 3600)
  FROM gateway.prefix_samples
 WHERE recorded_at >= %(since)s AND request_id >= %(oldest)s AND request_id < %(past)s
 ORDER BY 1
"""
CLEAR = "DELETE FROM gateway.prefix_shares WHERE hour = %s"
# The client got the answer of a request's last attempt.
FILL = """
WITH told AS (
    SELECT DISTINCT ON (request_id) request_id, cached_tokens FROM gateway.usage_events
     WHERE request_id >= %(first)s AND request_id < %(past)s ORDER BY request_id, attempt DESC
)
INSERT INTO gateway.prefix_shares
       (organization_id, hour, model, endpoint, template, cause, part, requests, prompt_tokens, reusable_tokens,
        cached_tokens, differing_token)
SELECT organization_id, %(hour)s, model, endpoint, template, cause, coalesce(part, ''), count(*), sum(prompt_tokens),
       sum(reusable_tokens), coalesce(sum(cached_tokens), 0), min(differing_token)
  FROM gateway.prefix_samples LEFT JOIN told USING (request_id)
 WHERE request_id >= %(first)s AND request_id < %(past)s
 GROUP BY organization_id, model, endpoint, template, cause, coalesce(part, '')
"""
FORGET = (
    """
DELETE FROM gateway.prefix_samples WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM gateway.prefix_samples WHERE recorded_at < now() - make_interval(days => %s) LIMIT %s))
""",
    """
DELETE FROM gateway.prefix_texts WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM gateway.prefix_texts WHERE recorded_at < now() - make_interval(days => %s) LIMIT %s))
""",
    """
DELETE FROM gateway.prefix_shares WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM gateway.prefix_shares WHERE hour < now() - make_interval(days => %s) LIMIT %s))
""",
    """
DELETE FROM gateway.prefix_drops WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM gateway.prefix_drops WHERE began_at < now() - make_interval(days => %s) LIMIT %s))
""",
)


def roll_up(database_url: str, *, sample_retention_days: int, now: datetime | None = None) -> int:
    """Bring `gateway.prefix_shares` up to date; returns the number of recomputed hours.

    Hours whose samples may already be deleted stay unchanged. Raises psycopg.Error; nothing is written then.
    """
    now = datetime.now(UTC) if now is None else now
    with connect(database_url) as connection:
        # A separate statement, so that the next one sees what the lock's previous holder committed.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_ID,))
        oldest = now - timedelta(days=sample_retention_days) + HOUR
        begin = _begin(connection, now, oldest)
        if begin is None:
            return 0
        hours = _touched(connection, begin, oldest)
        while begin <= now:
            hours.append(begin)
            begin += HOUR
        for hour in hours:
            connection.execute(CLEAR, (hour,))
            bounds = {"hour": hour, "first": first_at(hour.timestamp()), "past": first_at((hour + HOUR).timestamp())}
            connection.execute(FILL, bounds)
        return len(hours)


def forget(database_url: str, *, sample_retention_days: int, share_retention_days: int) -> int:
    """Delete rows past their retention; returns their number. Raises psycopg.Error."""
    forgotten = 0
    with connect(database_url, autocommit=True) as connection:
        for statement, days in zip(
            FORGET,
            (sample_retention_days, sample_retention_days, share_retention_days, share_retention_days),
            strict=True,
        ):
            while deleted := connection.execute(statement, (days, AT_ONCE)).rowcount:
                forgotten += deleted
    return forgotten


def _begin(connection: Connection, now: datetime, oldest: datetime) -> datetime | None:
    """The first hour to recompute; None without a sample."""
    row = connection.execute(NEWEST).fetchone()
    newest = row[0].astimezone(UTC) if row and row[0] is not None else None
    if newest is None:
        row = connection.execute(OLDEST_SAMPLE, (first_at(oldest.timestamp()),)).fetchone()
        if row is None or row[0] is None:
            return None
        newest = datetime.fromtimestamp(int(row[0][4:16], 16) / 1e3, UTC)
    return max(hour_of(oldest + HOUR), min(hour_of(newest), hour_of(now - LATE)))


def _touched(connection: Connection, begin: datetime, oldest: datetime) -> list[datetime]:
    """Hours before `begin`, in order, with samples recorded since then."""
    bounds = {
        "since": begin - LATE,
        "oldest": first_at(hour_of(oldest + HOUR).timestamp()),
        "past": first_at(begin.timestamp()),
    }
    return [hour.astimezone(UTC) for (hour,) in connection.execute(TOUCHED, bounds)]
