"""Compares roll-ups and amounts with the events that they were computed from, for a task and a command."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import msgspec
import psycopg
from sqlalchemy import (
    CTE,
    BigInteger,
    ClauseElement,
    ColumnElement,
    Date,
    Select,
    Table,
    and_,
    bindparam,
    except_,
    func,
    literal_column,
    select,
    union_all,
)

from contracts.dated_request_id import first_at
from control.billing.events import DAY, HOUR, IN_PARTITIONS, utc_day
from control.billing.invoice_rollup import CLOSED, LINE, SUMS, lines_of_days, lines_of_events
from control.billing.rollup import CLOSED_WEEKS, TOTALS, added_up, group_of, roll_up, time_of
from gateway.metering.ledger.amounts import amount_micro
from storage.tables.metering import (
    ROLLED_UP,
    invoice_days,
    invoice_months,
    organization_usage_daily,
    organization_usage_hourly,
    prices,
    project_usage_daily,
    usage_daily,
    usage_events,
    usage_hourly,
    usage_retired_days,
    usage_roll_up_runs,
    usage_weekly,
)
from storage.worker_connection import Connection, connect, run

_E, _I, _D, _W = usage_events.c, invoice_days.c, usage_daily.c, usage_weekly.c
_IN_TIME = and_(IN_PARTITIONS, _E.requested_at >= bindparam("begin"), _E.requested_at < bindparam("end"))
_RETIRED = select(usage_retired_days.c.day)
_LAST_RUN = select(func.max(usage_roll_up_runs.c.started_at)).scalar_subquery()
# A row that came after the last run is no error: the next run recomputes its hour.
_NEWS = select(HOUR.label("time")).distinct().where(_IN_TIME, _E.recorded_at >= _LAST_RUN)
_NEWS_BY_DAY = select(DAY.label("time")).distinct().where(_IN_TIME, _E.recorded_at >= _LAST_RUN)


def _of_events(time: ColumnElement[Any], table: Table) -> Select[Any]:
    """Sums of events for a roll-up: its time, group and sums. time: of an event."""
    group = group_of(usage_events, table)
    sums = [func.count(), *(func.sum(_E[name]).cast(BigInteger) for name in ROLLED_UP)]
    named = [each.label(name) for each, name in zip(sums, TOTALS, strict=True)]
    chosen = select(time.label("time"), *group, *named).where(_IN_TIME, _E.billed, DAY.not_in(_RETIRED))
    return chosen.group_by(time, *group)


def _compared(table: Table) -> ColumnElement[bool]:
    """Condition on the rows of a roll-up that are compared with their source."""
    time = time_of(table)
    if time.key == "hour":
        return and_(time >= bindparam("begin"), time < bindparam("end"), utc_day(time).not_in(_RETIRED))
    return and_(time >= bindparam("from_day"), time < bindparam("until_day"), time.not_in(_RETIRED))


def _different(sums: Select[Any], table: Table) -> Select[Any]:
    """The times of a roll-up's rows that are not among the sums, and of sums that are not among its rows."""
    stored = select(time_of(table), *group_of(table, table), *(table.c[name] for name in TOTALS))
    return _only_in_one(sums.cte(), stored.where(_compared(table)).cte())


def _only_in_one(one: CTE, other: CTE) -> Select[Any]:
    """The times, in the first column, of rows that only one of both has."""
    different = union_all(
        except_(select(one), select(other)).subquery().select(),
        except_(select(other), select(one)).subquery().select(),
    ).subquery()
    return select(next(iter(different.c)).label("time"))


def _wrong(news: Select[Any], *different: Select[Any]) -> Select[Any]:
    """Number of hours or days that differ from their source, in any roll-up."""
    times = union_all(*different).subquery()
    return select(func.count(times.c.time.distinct())).where(times.c.time.not_in(news))


def _of_finer(source: Table, table: Table) -> Select[Any]:
    return _different(added_up(source, table, _compared(source)), table)


def _wrong_invoice_days() -> Select[Any]:
    """Days whose closed hours differ from the sum of their events."""
    names = (*LINE, *SUMS)
    closed = and_(_IN_TIME, _E.requested_at < CLOSED.scalar_subquery())
    events = lines_of_events(DAY.label("day")).where(closed, DAY.not_in(_RETIRED)).cte()
    stored = select(_I.day, *(_I[name] for name in names)).where(
        _I.day >= bindparam("from_day"), _I.day < bindparam("until_day"), _I.day.not_in(_RETIRED)
    )
    return _only_in_one(events, stored.cte())


def _wrong_weeks() -> Select[Any]:
    """The Monday of each closed week that differs from the sum of its days."""
    first, week, group = (
        _week_of(bindparam("from_day", type_=Date)),
        _week_of(_D.day),
        group_of(usage_daily, usage_weekly),
    )
    sums = (func.sum(_D[name]).cast(BigInteger).label(name) for name in TOTALS)
    days = select(week.label("week"), *group, *sums).where(_D.day >= first, _D.day < CLOSED_WEEKS.scalar_subquery())
    stored = select(_W.week, *group_of(usage_weekly, usage_weekly), *(_W[name] for name in TOTALS))
    wrong = _only_in_one(days.group_by(week, *group).cte(), stored.where(_W.week >= first).cte()).subquery()
    return select(wrong.c.time).where(wrong.c.time < bindparam("until_day"))


def _week_of(day: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.date_trunc(literal_column("'week'"), day).cast(Date)


def _wrong_invoice_months() -> Select[Any]:
    """The first day of each month that differs from the sum of its days."""
    month = func.date_trunc(literal_column("'month'"), _I.day).cast(Date)
    days = lines_of_days(month.label("month")).group_by(month).cte()
    stored = select(invoice_months.c.month, *(invoice_months.c[name] for name in (*LINE, *SUMS))).cte()
    wrong = _only_in_one(days, stored).subquery()
    first = func.date_trunc(literal_column("'month'"), bindparam("from_day", type_=Date)).cast(Date)
    return select(wrong.c.time).where(wrong.c.time >= first, wrong.c.time < bindparam("until_day"))


WRONG_HOURS = _wrong(
    _NEWS,
    _different(_of_events(HOUR, usage_hourly), usage_hourly),
    _of_finer(usage_hourly, organization_usage_hourly),
)
WRONG_DAYS = _wrong(
    _NEWS_BY_DAY,
    _different(_of_events(DAY, usage_daily), usage_daily),
    _of_finer(usage_daily, project_usage_daily),
    _of_finer(project_usage_daily, organization_usage_daily),
    _wrong_weeks(),
    _wrong_invoice_days(),
    _wrong_invoice_months(),
)
WRONG_AMOUNTS = (
    select(func.count(), func.count().filter(_E.amount_micro != amount_micro(usage_events, prices, _E.price_percent)))
    .select_from(usage_events.outerjoin(prices, prices.c.version == _E.price_version))
    .where(_IN_TIME)
)
KEEP = """
INSERT INTO gateway.usage_verifications (checked_at, from_day, until_day, rows, wrong_hours, wrong_days, wrong_amounts)
VALUES (clock_timestamp(), %s, %s, %s, %s, %s, %s)
"""


class Verification(msgspec.Struct, frozen=True):
    """Numbers of differences on the days from `from_day` up to, not including, `until_day`."""

    from_day: date
    until_day: date
    rows: int
    """Attempts that were checked."""
    wrong_hours: int
    """Hours in which some total is not the sum of its events."""
    wrong_days: int
    wrong_amounts: int
    """Attempts whose amount differs from the cost of their tokens at their price."""

    @property
    def right(self) -> bool:
        """Whether nothing differs."""
        return self.wrong_hours == self.wrong_days == self.wrong_amounts == 0


def verify(database_url: str, from_day: date, until_day: date) -> Verification:
    """Bring the roll-ups up to date, then compare them with the events. Reads every event of those days.

    Raises psycopg.Error while the database is unreachable.
    """
    roll_up(database_url)
    begin, end = (datetime.combine(day, time(), UTC) for day in (from_day, until_day))
    parameters = {
        "first": first_at(begin.timestamp()),
        "last": first_at(end.timestamp()),
        "begin": begin,
        "end": end,
        "from_day": from_day,
        "until_day": until_day,
    }
    with connect(database_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        wrong_hours = _count(connection, WRONG_HOURS, parameters)[0]
        wrong_days = _count(connection, WRONG_DAYS, parameters)[0]
        rows, wrong_amounts = _count(connection, WRONG_AMOUNTS, parameters)
        connection.execute(KEEP, (from_day, until_day, rows, wrong_hours, wrong_days, wrong_amounts))
    return Verification(from_day, until_day, rows, wrong_hours, wrong_days, wrong_amounts)


def last_days(count: int) -> tuple[date, date]:
    """Today and the `count` days before it, as arguments of `verify`."""
    today = datetime.now(UTC).date()
    return today - timedelta(days=count), today + timedelta(days=1)


def _count(connection: Connection, query: ClauseElement, parameters: dict[str, object]) -> tuple[int, ...]:
    row = run(connection, query, parameters).fetchone()
    assert row is not None
    return tuple(int(str(value)) for value in row)
