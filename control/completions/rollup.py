"""Recomputes the totals of completions' outcomes from the traces and the editors' reports.

A run replaces whole hours of an organization, never adds to them, and sums days and weeks from their parts, so running
it twice, late, or from two workers at once changes nothing. A request belongs to the hour in which it arrived. A report
comes seconds or hours later, and every hour of an organization with new rows since the last run is recomputed. Hours
whose traces may already be deleted stay unchanged. Due hours are in a table of their own until they are recomputed, a
few hours per transaction and organizations in turn: a run ends in seconds whatever one organization's editors report,
and the next run continues.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple, cast
from uuid import UUID

from contracts.dated_request_id import FIRST_DATED, PAST_DATED, first_at
from contracts.generation import Tier
from control.completions.total_tables import COUNTS
from gateway.autocomplete.event_type import EventType
from gateway.supersession.in_flight_request import SUPERSEDED
from storage.calendar import hour_of, midnight, week_of
from storage.latency_histogram import bucket_sql
from storage.worker_connection import Connection, connect

LOCK_ID = 0x636D706C
"""Key of the advisory lock, the bytes of `cmpl`."""
OVERLAP_S = 30
"""A row's recorded_at is the start of its transaction, which gateways give up after five seconds (serving/trace.py)."""
HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)
AT_ONCE = 8
"""Hours recomputed by one transaction."""
MARGIN = HOUR
"""Distance of the oldest recomputed hour from the limit of retention: request ids follow gateways' clocks."""
UNKNOWN = "unknown"
"""A language or client that was not reported."""
NO_PROJECT = UUID(int=0)
SERVED, ABANDONED = 200, 499

# Like `dated_request_id.arrived_at_s`; only for ids that carry a time.
ARRIVED_HOUR = "to_timestamp(('x' || substr(request_id, 5, 12))::bit(48)::bigint / 3600000 * 3600)"
LAST_RUN = f"""
(SELECT coalesce(max(started_at), '-infinity') - interval '{OVERLAP_S} seconds' FROM gateway.completion_roll_up_runs)
"""  # noqa: S608
MADE = f"tier = '{Tier.AUTOCOMPLETE}' AND status IN ({SERVED}, {ABANDONED})"
# A report may name any id, so it is news only if its project has such a completion. LIMIT has each one looked up
# separately, whatever the planner estimates, and the traces' own collation lets it use their index.
TOUCHED = f"""
INSERT INTO gateway.completion_due_hours (hour, organization_id, since)
SELECT DISTINCT {ARRIVED_HOUR}, organization_id, now()
  FROM (SELECT organization_id, request_id FROM gateway.request_traces
         WHERE recorded_at >= {LAST_RUN} AND {MADE} AND request_id >= %(oldest)s AND request_id < %(past)s
         UNION ALL
        SELECT organization_id, request_id FROM gateway.completion_events AS event
         CROSS JOIN LATERAL (SELECT FROM gateway.request_traces AS trace
                              WHERE trace.request_id = event.request_id COLLATE "default" AND {MADE}
                                AND trace.organization_id = event.organization_id
                                AND coalesce(trace.project_id, '{NO_PROJECT}') = event.project_id
                              LIMIT 1) AS made
         WHERE recorded_at >= {LAST_RUN} AND request_id >= %(oldest)s AND request_id < %(past)s) AS told
    ON CONFLICT DO NOTHING
"""  # noqa: S608
TOO_OLD = "DELETE FROM gateway.completion_due_hours WHERE hour < %(hour)s"
# For its next hour, an organization waits for at most one hour of each other one. An hour that became due again comes
# after hours that have not been recomputed yet.
DUE = """
SELECT hour
  FROM (SELECT hour, since, row_number() OVER (PARTITION BY organization_id ORDER BY since, hour DESC) AS turn
          FROM gateway.completion_due_hours) AS turns
 GROUP BY hour ORDER BY min(turn), min(since), hour DESC
"""
TAKE = "DELETE FROM gateway.completion_due_hours WHERE hour = ANY(%s) RETURNING hour, organization_id"
WHOSE = "organization_id = ANY(%(organizations)s::uuid[])"
_NAMES = ", ".join(COUNTS)
_SUMS = ", ".join(f"sum({name})::bigint AS {name}" for name in COUNTS)
_KEY = "organization_id, project_id, hour, language, client, model"

CLEAR_HOUR = f"DELETE FROM gateway.completion_hours WHERE hour = %(hour)s AND {WHOSE}"  # noqa: S608
# A showing is a completion's choice in one view of an editor. A report about another project's completion counts for
# nothing. No more characters are kept than offered (`least` ignores null); a first choice that was accepted in full
# without a count was kept in full.
FILL_HOUR = f"""
WITH made AS MATERIALIZED (
    SELECT request_id, organization_id, coalesce(project_id, '{NO_PROJECT}') AS project_id, {ARRIVED_HOUR} AS hour,
           coalesce(language, '{UNKNOWN}') AS language, coalesce(client, '{UNKNOWN}') AS client,
           coalesce(model, '') AS model, status, characters, total_ms,
           coalesce(error_code, '') = '{SUPERSEDED}' AS is_superseded
      FROM gateway.request_traces
     WHERE {WHOSE} AND request_id >= %(first)s AND request_id < %(past)s AND {MADE}
), showing AS (
    SELECT organization_id, request_id, project_id, choice_index, view_id,
           bool_or(is_taken) AS accepted, bool_or(type = '{EventType.DISMISS}') AS dismissed,
           bool_or(type = '{EventType.SELECT}' AND characters IS NULL) AS whole,
           coalesce(max(characters) FILTER (WHERE is_taken), 0) AS told
      FROM gateway.completion_events
     CROSS JOIN LATERAL (SELECT type IN ('{EventType.SELECT}', '{EventType.SELECT_PART}') AS is_taken) AS what
     WHERE {WHOSE} AND request_id >= %(first)s AND request_id < %(past)s
     GROUP BY organization_id, request_id, project_id, choice_index, view_id
), became AS (
    SELECT organization_id, request_id, project_id, count(*) AS shown, count(*) FILTER (WHERE accepted) AS accepted,
           count(*) FILTER (WHERE dismissed AND NOT accepted) AS dismissed,
           sum(CASE WHEN choice_index = 0 AND whole AND characters IS NOT NULL THEN characters
                    WHEN choice_index = 0 THEN least(told, characters) ELSE told END)
               FILTER (WHERE accepted) AS characters_kept
      FROM showing JOIN made USING (organization_id, request_id, project_id)
     GROUP BY organization_id, request_id, project_id
), bucketed AS (
    SELECT {_KEY}, CASE WHEN is_offered AND total_ms < 'Infinity' THEN {bucket_sql("total_ms")} END AS bucket,
           count(*) FILTER (WHERE is_offered) AS completions,
           count(*) FILTER (WHERE is_served AND characters = 0) AS empty,
           count(*) FILTER (WHERE status = {ABANDONED}) AS abandoned,
           count(*) FILTER (WHERE is_superseded) AS superseded,
           coalesce(sum(shown), 0) AS shown, coalesce(sum(accepted), 0) AS accepted,
           coalesce(sum(dismissed), 0) AS dismissed,
           coalesce(sum(characters) FILTER (WHERE is_served), 0) AS characters_offered,
           coalesce(sum(characters_kept), 0) AS characters_kept
      FROM made LEFT JOIN became USING (organization_id, request_id, project_id)
     CROSS JOIN LATERAL (SELECT status = {SERVED} AND NOT is_superseded AS is_served) AS answered
     CROSS JOIN LATERAL (SELECT is_served AND coalesce(characters, 1) > 0 AS is_offered) AS had_text
     GROUP BY {_KEY}, bucket
)
INSERT INTO gateway.completion_hours ({_KEY}, {_NAMES}, buckets, counts)
SELECT {_KEY}, {_SUMS}, coalesce(array_agg(bucket ORDER BY bucket) FILTER (WHERE bucket IS NOT NULL), '{{}}'),
       coalesce(array_agg(completions ORDER BY bucket) FILTER (WHERE bucket IS NOT NULL), '{{}}')
  FROM bucketed GROUP BY {_KEY}
"""  # noqa: S608


class Cut(NamedTuple):
    """A table whose rows are sums of another table's. time: its date column; key: its additional group columns."""

    table: str
    time: str
    key: str
    parts: str
    parts_time: str

    @property
    def clear(self) -> str:
        """Deletes one day or week of some organizations."""
        return f"DELETE FROM gateway.{self.table} WHERE {self.time} = %(at)s AND {WHOSE}"  # noqa: S608

    @property
    def fill(self) -> str:
        """Adds up that day or week from its parts."""
        group = f"organization_id, {self.key}"
        return f"""
WITH parts AS MATERIALIZED (
    SELECT * FROM gateway.{self.parts} WHERE {WHOSE} AND {self.parts_time} >= %(begin)s AND {self.parts_time} < %(end)s
), summed AS (
    SELECT {group}, {_SUMS} FROM parts GROUP BY {group}
), bucketed AS (
    SELECT {group}, bucket, sum(each)::bigint AS of_bucket
      FROM (SELECT {group}, unnest(buckets) AS bucket, unnest(counts) AS each FROM parts) AS histogram
     GROUP BY {group}, bucket
), histograms AS (
    SELECT {group}, array_agg(bucket ORDER BY bucket) AS buckets, array_agg(of_bucket ORDER BY bucket) AS counts
      FROM bucketed GROUP BY {group}
)
INSERT INTO gateway.{self.table} ({self.time}, {group}, {_NAMES}, buckets, counts)
SELECT %(at)s, {group}, {_NAMES}, coalesce(buckets, '{{}}'), coalesce(counts, '{{}}')
  FROM summed LEFT JOIN histograms USING ({group})
"""  # noqa: S608


DETAILED = Cut("detailed_completion_days", "day", "project_id, language, client, model", "completion_hours", "hour")
DAILY = (
    Cut("completion_days", "day", "language, client, model", DETAILED.table, "day"),
    Cut("project_completion_days", "day", "project_id", DETAILED.table, "day"),
)
WEEKLY = Cut("project_completion_weeks", "week", "project_id", "project_completion_days", "day")
FORGET_HOURS = "DELETE FROM gateway.completion_hours WHERE hour < %s"
FORGET = tuple(f"DELETE FROM gateway.{cut.table} WHERE {cut.time} < %s" for cut in (DETAILED, *DAILY, WEEKLY))  # noqa: S608
# Runs of a clock that was ahead would hide new rows until that time is reached again.
AHEAD_RUNS = "DELETE FROM gateway.completion_roll_up_runs WHERE started_at > clock_timestamp() + interval '10 seconds'"
RAN = "INSERT INTO gateway.completion_roll_up_runs VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
OLD_RUNS = "DELETE FROM gateway.completion_roll_up_runs WHERE started_at < now() - interval '7 days'"


def roll_up(
    database_url: str,
    *,
    trace_retention_days: int,
    retention_days: int | None = None,
    longest_s: float | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> int:
    """Bring the totals of completions up to date; returns the number of recomputed hours, summed over organizations.
    trace_retention_days: how long traces and reports certainly exist. retention_days: of the totals, which are deleted
    by whole weeks (UTC); None to delete none now. longest_s: time after which no more hours are begun, except the first
    ones; None to recompute all. clock: for ages.

    Raises psycopg.Error if the database is unavailable; recomputed hours stay, and the next run does the rest.
    """
    began_s, now = time.monotonic(), clock()
    hours = 0
    with connect(database_url, autocommit=True) as connection:
        with _alone(connection):
            started_at = _find(connection, hour_of(now - timedelta(days=trace_retention_days) + MARGIN) + HOUR)
        due = [hour for (hour,) in connection.execute(DUE)]
        for first in range(0, len(due), AT_ONCE):
            with _alone(connection):
                hours += _redo_hours(connection, due[first : first + AT_ONCE])
            if longest_s is not None and time.monotonic() - began_s >= longest_s:
                break
        with _alone(connection):
            if retention_days is not None:
                _forget(connection, week_of((now - timedelta(days=retention_days)).date()))
            # Last, because pages read the totals again when a run appears.
            connection.execute(RAN, (started_at, time.monotonic() - began_s, hours))
            connection.execute(OLD_RUNS)
    return hours


@contextlib.contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """A transaction that excludes other runs."""
    with connection.transaction():
        # A separate statement, so that the next one sees what the lock's previous holder committed.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_ID,))
        yield


def _find(connection: Connection, oldest: datetime) -> datetime:
    """Make hours with news due, from the oldest on. Returns the time from which the next run must look."""
    connection.execute(AHEAD_RUNS)
    connection.execute(TOUCHED, {"oldest": max(FIRST_DATED, first_at(oldest.timestamp())), "past": PAST_DATED})
    connection.execute(TOO_OLD, {"hour": oldest})
    row = connection.execute("SELECT now()").fetchone()
    assert row is not None
    return cast(datetime, row[0])


def _redo_hours(connection: Connection, due: Sequence[datetime]) -> int:
    """Recompute due hours, their days and their weeks. Returns the number of hours, summed over organizations."""
    touched: dict[datetime, set[UUID]] = defaultdict(set)
    for hour, organization_id in connection.execute(TAKE, (due,)):
        touched[hour.astimezone(UTC)].add(organization_id)
    days: dict[date, set[UUID]] = defaultdict(set)
    weeks: dict[date, set[UUID]] = defaultdict(set)
    for hour, owners in sorted(touched.items()):
        _redo_hour(connection, hour, owners)
        days[hour.date()].update(owners)
    for day, owners in sorted(days.items()):
        _redo(connection, DETAILED, day, midnight(day), midnight(day) + DAY, owners)
        for cut in DAILY:
            _redo(connection, cut, day, day, day + DAY, owners)
        weeks[week_of(day)].update(owners)
    for week, owners in sorted(weeks.items()):
        _redo(connection, WEEKLY, week, week, week + WEEK, owners)
    return sum(map(len, touched.values()))


def _redo_hour(connection: Connection, hour: datetime, organizations: Collection[UUID]) -> None:
    bounds = {"first": first_at(hour.timestamp()), "past": first_at((hour + HOUR).timestamp())}
    for statement in (CLEAR_HOUR, FILL_HOUR):
        connection.execute(statement, {"hour": hour, "organizations": sorted(organizations), **bounds})


def _redo(connection: Connection, cut: Cut, at: date, begin: date, end: date, organizations: Collection[UUID]) -> None:
    """Recompute a day or week from its parts. begin, end: of the parts: times for hours, otherwise days."""
    bounds = {"at": at, "begin": begin, "end": end, "organizations": sorted(organizations)}
    for statement in (cut.clear, cut.fill):
        connection.execute(statement, bounds)


def _forget(connection: Connection, oldest: date) -> None:
    """Delete rows before the oldest week, so that no row stays without some of its parts."""
    connection.execute(FORGET_HOURS, (midnight(oldest),))
    for statement in FORGET:
        connection.execute(statement, (oldest,))
