"""Totals by hour and by day of what is billed, recomputed from the ledger. Called by the worker's scheduled task.

Whole hours and days are replaced, never added to, so running it twice, late, or from two workers at once changes
nothing. Rows may reach the ledger long after their hour (a gateway was away): every hour that has news since the last
run is redone. The hour is that in which the request arrived.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import groupby

import psycopg

from gateway.metering.journal.request_id import first_at
from gateway.metering.tables import COUNTED

LOCK_ID = 0x726F6C6C
"""Key of the advisory lock, the bytes of `roll`."""
OVERLAP = "10 minutes"
"""A row's recorded_at is when its transaction began, so it may appear this much after a later one was already seen."""
KEEP_RUNS = "7 days"

GROUP = "organization_id, project_id, key_id, model, tier"
TOTALS = ", ".join(("requests", *COUNTED))
SUMS = ", ".join(("count(*)", *(f"sum({name})" for name in COUNTED)))
SUMS_OF_HOURS = ", ".join(f"sum({name})" for name in ("requests", *COUNTED))
IN_IDS = """
((request_id >= %(first)s AND request_id < %(last)s)
 OR request_id < 'req_016f5e66e800' OR request_id >= 'req_03bb2cc3d800')
"""
"""The partitions of some days, and the two that hold ids without a time."""
_REPLACE = ", ".join(f"{name} = excluded.{name}" for name in ("requests", *COUNTED, "computed_at"))

TOUCHED = f"""
SELECT DISTINCT date_trunc('hour', requested_at, 'UTC')
  FROM gateway.usage_events
 WHERE recorded_at >= (SELECT coalesce(max(started_at), '-infinity') - interval '{OVERLAP}'
                         FROM gateway.usage_roll_up_runs)
   AND (requested_at AT TIME ZONE 'UTC')::date NOT IN (SELECT day FROM gateway.usage_retired_days)
 ORDER BY 1
"""  # noqa: S608  built from constants of this file
HOURS = f"""
INSERT INTO gateway.usage_hourly (hour, {GROUP}, {TOTALS}, computed_at)
SELECT date_trunc('hour', requested_at, 'UTC') AS hour, {GROUP}, {SUMS}, now()
  FROM gateway.usage_events
 WHERE {IN_IDS} AND billed AND date_trunc('hour', requested_at, 'UTC') = ANY(%(hours)s)
 GROUP BY hour, {GROUP}
    ON CONFLICT (hour, {GROUP}) DO UPDATE SET {_REPLACE}
"""  # noqa: S608  built from constants of this file
DAY = f"""
INSERT INTO gateway.usage_daily (day, {GROUP}, {TOTALS}, computed_at)
SELECT %(day)s, {GROUP}, {SUMS_OF_HOURS}, now()
  FROM gateway.usage_hourly WHERE hour >= %(begin)s AND hour < %(end)s
 GROUP BY {GROUP}
    ON CONFLICT (day, {GROUP}) DO UPDATE SET {_REPLACE}
"""  # noqa: S608  built from constants of this file


def roll_up(database_url: str, *, connect_timeout_s: int = 10) -> int:
    """Bring `gateway.usage_hourly` and `gateway.usage_daily` up to date; returns the number of hourly rows written.

    Raises psycopg.Error when the database is away; nothing is written then, and the next run makes up for it.
    """
    began_s = time.monotonic()
    with psycopg.connect(database_url, connect_timeout=connect_timeout_s) as connection:
        # Taken in a statement of its own: the next one then sees what the previous holder committed.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_ID,))
        touched = [hour.astimezone(UTC) for (hour,) in connection.execute(TOUCHED.encode())]
        written = 0
        for day, found in groupby(touched, key=lambda hour: hour.replace(hour=0)):
            written += _redo(connection, day, list(found))
        connection.execute(
            "INSERT INTO gateway.usage_roll_up_runs VALUES (now(), %s, %s) ON CONFLICT DO NOTHING",
            (time.monotonic() - began_s, len(touched)),
        )
        connection.execute(f"DELETE FROM gateway.usage_roll_up_runs WHERE started_at < now() - interval '{KEEP_RUNS}'")  # noqa: S608
        return written


def _redo(connection: psycopg.Connection[tuple[object, ...]], day: datetime, hours: list[datetime]) -> int:
    first, last = hours[0], hours[-1] + timedelta(hours=1)
    parameters = {"first": first_at(first.timestamp()), "last": first_at(last.timestamp()), "hours": hours}
    written = connection.execute(HOURS.encode(), parameters).rowcount
    connection.execute(DAY.encode(), {"day": day.date(), "begin": day, "end": day + timedelta(days=1)})
    return written
