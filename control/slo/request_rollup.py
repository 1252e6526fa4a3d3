"""Counts the requests, failures and refusals of each hour, for long windows.

It replaces whole hours, in the transaction of the roll-up of objectives (control/slo/rollup.py), which knows the hours
with news.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from contracts.dated_request_id import first_at
from control.slo.asked import FAILED_CODE, KNOWN_MODEL, LIMITED, RETRIED, RULE, WAITED_FOR
from control.slo.judgement import FAILED
from storage.worker_connection import Connection

HOUR = timedelta(hours=1)
EVERYBODY, NO_KEY = UUID(int=0), UUID(int=0)
EVERY_TIER, NO_TIER = "*", ""
_ASKED = f"FROM gateway.request_traces WHERE request_id >= %(first)s AND request_id < %(past)s AND {WAITED_FOR}"
# The requests of a second are counted by tier, and for all tiers together, before they are squared.
FILL_REQUESTS = f"""
WITH cut AS (
    SELECT grouping(organization_id) AS of_all, grouping(tier) AS of_every_tier, organization_id, tier, second,
           count(*) AS requests, count(*) FILTER (WHERE is_retried) AS retried,
           count(*) FILTER (WHERE status = 200) AS answered
      FROM (SELECT organization_id, coalesce(tier, '{NO_TIER}') AS tier, status,
                   {RETRIED} AS is_retried,
                   ('x' || substr(request_id, 5, 12))::bit(48)::bigint / 1000 AS second {_ASKED}) AS asked
     GROUP BY GROUPING SETS ((organization_id, tier, second), (organization_id, second), (tier, second), (second))
)
INSERT INTO gateway.request_hours (at, organization_id, tier, requests, retried, answered, squares)
SELECT %(begin)s, CASE of_all WHEN 1 THEN '{EVERYBODY}' ELSE organization_id END,
       CASE of_every_tier WHEN 1 THEN '{EVERY_TIER}' ELSE tier END,
       sum(requests), sum(retried), sum(answered), sum(requests * requests)
  FROM cut GROUP BY 1, 2, 3
"""  # noqa: S608
FILL_ERRORS = f"""
INSERT INTO gateway.request_error_hours (at, organization_id, tier, error_code, rule, requests)
SELECT %(begin)s, organization_id, coalesce(tier, '{NO_TIER}'), error_code, {RULE}, count(*)
  {_ASKED} AND error_code IS NOT NULL AND ({FAILED} OR {LIMITED})
 GROUP BY 1, 2, 3, 4, 5
"""
FILL_REFUSED = f"""
INSERT INTO gateway.refused_key_hours (at, organization_id, tier, key_id, requests)
SELECT %(begin)s, organization_id, coalesce(tier, '{NO_TIER}'), coalesce(key_id, '{NO_KEY}'), count(*)
  {_ASKED} AND ({LIMITED} OR over_share)
 GROUP BY 1, 2, 3, 4
"""
FILL_TARGETS = f"""
INSERT INTO gateway.request_target_hours (at, organization_id, tier, model, pool, error_code, requests)
SELECT %(begin)s, organization_id, coalesce(tier, '{NO_TIER}'), model, coalesce(pool, ''), {FAILED_CODE}, count(*)
  {_ASKED} AND {KNOWN_MODEL}
 GROUP BY 1, 2, 3, 4, 5, 6
"""
TABLES = ("request_hours", "request_error_hours", "refused_key_hours", "request_target_hours")


def redo_hours(connection: Connection, hours: Iterable[datetime]) -> None:
    """Replace these hours (UTC), whose traces must all exist. Raises psycopg.Error."""
    for hour in hours:
        past = hour + HOUR
        period = {"begin": hour, "first": first_at(hour.timestamp()), "past": first_at(past.timestamp())}
        for table in TABLES:
            connection.execute(f"DELETE FROM gateway.{table} WHERE at = %(begin)s", period)  # noqa: S608
        for fill in (FILL_REQUESTS, FILL_ERRORS, FILL_REFUSED, FILL_TARGETS):
            connection.execute(fill, period)


def forget(connection: Connection, days: int) -> None:
    """Delete hours older than `days`. Raises psycopg.Error."""
    for table in TABLES:
        connection.execute(f"DELETE FROM gateway.{table} WHERE at < now() - make_interval(days => %s)", (days,))  # noqa: S608
