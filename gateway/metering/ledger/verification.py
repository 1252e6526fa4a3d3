"""Holds roll-ups and amounts against the events they were computed from. For a task, and for people in doubt."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import msgspec
import psycopg

from gateway.metering.journal.request_id import first_at
from gateway.metering.ledger.ledger import AMOUNT, PARTS
from gateway.metering.ledger.rollup import GROUP, IN_IDS, TOTALS, roll_up
from gateway.metering.tables import COUNTED

_SUMS = ", ".join(("count(*)", *(f"sum({name})::bigint" for name in COUNTED)))
_RANGE = f"{IN_IDS} AND requested_at >= %(begin)s AND requested_at < %(end)s"
_HOUR = "date_trunc('hour', requested_at, 'UTC')"
_DAY = "(requested_at AT TIME ZONE 'UTC')::date"
_KEPT = "NOT IN (SELECT day FROM gateway.usage_retired_days)"
# A row that came after the last run is not wrong: its hour is redone by the next.
_NEWS = f"""
SELECT DISTINCT {_HOUR} AS hour FROM gateway.usage_events
 WHERE {_RANGE} AND recorded_at >= (SELECT max(started_at) FROM gateway.usage_roll_up_runs)
"""  # noqa: S608
WRONG_HOURS = f"""
WITH news AS ({_NEWS}), events AS (
    SELECT {_HOUR} AS hour, {GROUP}, {_SUMS} FROM gateway.usage_events
     WHERE {_RANGE} AND billed AND {_DAY} {_KEPT} GROUP BY hour, {GROUP}
), hours AS (
    SELECT hour, {GROUP}, {TOTALS} FROM gateway.usage_hourly
     WHERE hour >= %(begin)s AND hour < %(end)s AND (hour AT TIME ZONE 'UTC')::date {_KEPT}
)
SELECT count(DISTINCT hour) FROM (
    (SELECT * FROM events EXCEPT SELECT * FROM hours) UNION ALL (SELECT * FROM hours EXCEPT SELECT * FROM events)
) AS different WHERE hour NOT IN (SELECT hour FROM news)
"""  # noqa: S608
WRONG_DAYS = f"""
WITH news AS ({_NEWS}), events AS (
    SELECT {_DAY} AS day, {GROUP}, {_SUMS} FROM gateway.usage_events
     WHERE {_RANGE} AND billed AND {_DAY} {_KEPT} GROUP BY 1, {GROUP}
), days AS (
    SELECT day, {GROUP}, {TOTALS} FROM gateway.usage_daily
     WHERE day >= %(from_day)s AND day < %(until_day)s AND day {_KEPT}
)
SELECT count(DISTINCT day) FROM (
    (SELECT * FROM events EXCEPT SELECT * FROM days) UNION ALL (SELECT * FROM days EXCEPT SELECT * FROM events)
) AS different WHERE day NOT IN (SELECT (hour AT TIME ZONE 'UTC')::date FROM news)
"""  # noqa: S608
WRONG_AMOUNTS = f"""
SELECT count(*), count(*) FILTER (WHERE r.amount_micro <> CASE WHEN price.version IS NULL THEN 0 ELSE {AMOUNT} END)
  FROM gateway.usage_events r LEFT JOIN gateway.prices price ON price.version = r.price_version {PARTS}
 WHERE {_RANGE}
"""  # noqa: S608
KEEP = """
INSERT INTO gateway.usage_verifications (checked_at, from_day, until_day, rows, wrong_hours, wrong_days, wrong_amounts)
VALUES (clock_timestamp(), %s, %s, %s, %s, %s, %s)
"""


class Verification(msgspec.Struct, frozen=True):
    """How many differ, of days `from_day` up to, not including, `until_day`."""

    from_day: date
    until_day: date
    rows: int
    """Attempts looked at."""
    wrong_hours: int
    """Hours in which some total is not the sum of its events."""
    wrong_days: int
    wrong_amounts: int
    """Rows whose amount is not what their tokens cost at the price they name."""

    @property
    def right(self) -> bool:
        """No total differs from its rows."""
        return self.wrong_hours == self.wrong_days == self.wrong_amounts == 0


def verify(database_url: str, from_day: date, until_day: date, *, connect_timeout_s: int = 10) -> Verification:
    """Bring the roll-ups up to date, then compare them with the events. Reads every event of those days.

    Raises psycopg.Error when the database is away.
    """
    roll_up(database_url, connect_timeout_s=connect_timeout_s)
    begin, end = (datetime.combine(day, time(), UTC) for day in (from_day, until_day))
    parameters = {
        "first": first_at(begin.timestamp()),
        "last": first_at(end.timestamp()),
        "begin": begin,
        "end": end,
        "from_day": from_day,
        "until_day": until_day,
    }
    with psycopg.connect(database_url, connect_timeout=connect_timeout_s) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        wrong_hours = _count(connection, WRONG_HOURS, parameters)[0]
        wrong_days = _count(connection, WRONG_DAYS, parameters)[0]
        rows, wrong_amounts = _count(connection, WRONG_AMOUNTS, parameters)
        connection.execute(KEEP, (from_day, until_day, rows, wrong_hours, wrong_days, wrong_amounts))
    return Verification(from_day, until_day, rows, wrong_hours, wrong_days, wrong_amounts)


def last_days(count: int) -> tuple[date, date]:
    """Today and the `count` days before it, as `verify` takes them."""
    today = datetime.now(UTC).date()
    return today - timedelta(days=count), today + timedelta(days=1)


def _count(
    connection: psycopg.Connection[tuple[object, ...]], query: str, parameters: dict[str, object]
) -> tuple[int, ...]:
    row = connection.execute(query.encode(), parameters).fetchone()
    assert row is not None
    return tuple(int(str(value)) for value in row)
