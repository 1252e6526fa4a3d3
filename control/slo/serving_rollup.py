"""Rolls up the whole deployment's requests by minute and hour, and organizations' requests by hour. It runs under the
lock and in the transaction of the roll-up of objectives (`rollup.py`), and also replaces whole minutes and hours.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from contracts.dated_request_id import first_at
from control.slo.asked import WAITED_FOR
from control.slo.serving_tables import MEASURES
from control.slo.tables import COUNTS
from storage.latency_histogram import bucket_sql
from storage.worker_connection import Connection

HOUR = timedelta(hours=1)
_SUMS = ", ".join(f"sum({name})" for name in COUNTS)
_NAMES = ", ".join(COUNTS)
_OF = "tier, length, model, pool, side"
_MEASURED = ", ".join(f"('{measure}', {column})" for measure, column in MEASURES.items())
# Like `judged.MINUTE`.
ARRIVED = "to_timestamp(('x' || substr(request_id, 5, 12))::bit(48)::bigint / 60000 * 60)"
MEASURED = f"""
SELECT {ARRIVED} AS at, tier, coalesce(model, '') AS model, coalesce(pool, '') AS pool, measure, value_ms
  FROM gateway.request_traces
 CROSS JOIN LATERAL (VALUES {_MEASURED}) AS measured (measure, value_ms)
 WHERE tier IS NOT NULL AND {WAITED_FOR} AND value_ms < 'Infinity'
"""  # noqa: S608
"""A row for each finite value of each request with a waiting client; conditions on `request_id` may follow. For
PostgreSQL, NaN is more than infinity."""
FILL_MINUTES = f"""
INSERT INTO gateway.serving_minutes (at, {_OF}, {_NAMES})
SELECT minute, {_OF}, {_SUMS}
  FROM gateway.slo_minutes WHERE minute >= %(begin)s AND minute < %(end)s GROUP BY minute, {_OF}
"""  # noqa: S608
FILL_LATENCIES = f"""
INSERT INTO gateway.latency_minutes (at, tier, model, pool, measure, buckets, counts)
SELECT at, tier, model, pool, measure, array_agg(bucket ORDER BY bucket), array_agg(requests ORDER BY bucket)
  FROM (SELECT at, tier, model, pool, measure,
               {bucket_sql("value_ms")} AS bucket, count(*) AS requests
          FROM ({MEASURED} AND request_id >= %(first)s AND request_id < %(past)s) AS measured
         GROUP BY 1, 2, 3, 4, 5, 6) AS bucketed
 GROUP BY 1, 2, 3, 4, 5
"""  # noqa: S608
FILL_HOURS = f"""
INSERT INTO gateway.serving_hours (at, {_OF}, {_NAMES})
SELECT %(begin)s, {_OF}, {_SUMS}
  FROM gateway.serving_minutes WHERE at >= %(begin)s AND at < %(end)s GROUP BY {_OF}
"""  # noqa: S608
FILL_HOURS_OF_ORGANIZATIONS = f"""
INSERT INTO gateway.slo_hours (at, organization_id, {_OF}, {_NAMES})
SELECT %(begin)s, organization_id, {_OF}, {_SUMS}
  FROM gateway.slo_minutes WHERE minute >= %(begin)s AND minute < %(end)s GROUP BY organization_id, {_OF}
"""  # noqa: S608
FILL_HOURLY_LATENCIES = """
INSERT INTO gateway.latency_hours (at, tier, model, pool, measure, buckets, counts)
SELECT hour, tier, model, pool, measure, array_agg(bucket ORDER BY bucket), array_agg(requests ORDER BY bucket)
  FROM (SELECT date_trunc('hour', at, 'UTC') AS hour, tier, model, pool, measure, bucket, sum(each)::bigint AS requests
          FROM gateway.latency_minutes CROSS JOIN unnest(buckets, counts) AS histogram (bucket, each)
         WHERE at >= %(begin)s AND at < %(end)s GROUP BY 1, 2, 3, 4, 5, 6) AS added
 GROUP BY 1, 2, 3, 4, 5
"""
MINUTELY, HOURLY = ("serving_minutes", "latency_minutes"), ("serving_hours", "latency_hours", "slo_hours")


def redo_minutes(connection: Connection, begin: datetime, end: datetime) -> None:
    """Replace these whole minutes. Their `gateway.slo_minutes` must have been replaced. Raises psycopg.Error."""
    _clear(connection, MINUTELY, begin, end)
    period = {"begin": begin, "end": end, "first": first_at(begin.timestamp()), "past": first_at(end.timestamp())}
    connection.execute(FILL_MINUTES, period)
    connection.execute(FILL_LATENCIES, period)


def redo_hours(connection: Connection, minutes: Iterable[datetime]) -> None:
    """Replace the hours (UTC) that these minutes are in, from their minutes. Raises psycopg.Error."""
    for hour in sorted({minute.replace(minute=0) for minute in minutes}):
        _clear(connection, HOURLY, hour, hour + HOUR)
        for fill in (FILL_HOURS, FILL_HOURS_OF_ORGANIZATIONS, FILL_HOURLY_LATENCIES):
            connection.execute(fill, {"begin": hour, "end": hour + HOUR})


def forget(connection: Connection, days: int) -> None:
    """Delete minutes and hours older than `days`. Raises psycopg.Error."""
    for table in (*MINUTELY, *HOURLY):
        connection.execute(f"DELETE FROM gateway.{table} WHERE at < now() - make_interval(days => %s)", (days,))  # noqa: S608


def _clear(connection: Connection, tables: Iterable[str], begin: datetime, end: datetime) -> None:
    for table in tables:
        connection.execute(f"DELETE FROM gateway.{table} WHERE at >= %s AND at < %s", (begin, end))  # noqa: S608
