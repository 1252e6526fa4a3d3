"""Recomputes billed totals by hour, day and week from the ledger. A task of the worker calls it.

Whole hours and days are replaced, and never added to, so it may run twice, late, or in two workers at once. Rows may
reach the ledger long after their hour, for example from a gateway that was unreachable. Every hour with new rows since
the last run is recomputed. The hour is that of the request's arrival. Hours are added up from events, days from hours,
past weeks from days, and totals without keys or projects from totals that have them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Date,
    DateTime,
    Select,
    Table,
    any_,
    bindparam,
    case,
    delete,
    func,
    select,
)
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.sql.expression import literal_column

from contracts.dated_request_id import first_at
from control.billing.events import DAY, HOUR, IN_PARTITIONS, utc_day
from control.billing.invoice_rollup import close_hours
from storage.calendar import week_of
from storage.tables.metering import (
    ROLLED_UP,
    organization_usage_daily,
    organization_usage_hourly,
    project_usage_daily,
    usage_daily,
    usage_events,
    usage_hourly,
    usage_retired_days,
    usage_roll_up_runs,
    usage_week_closings,
    usage_weekly,
)
from storage.worker_connection import Connection, connect, run

LOCK_ID = 0x726F6C6C
"""Key of the advisory lock, the bytes of `roll`."""
OVERLAP: ColumnElement[Any] = literal_column("interval '10 minutes'")
"""A row's recorded_at is the beginning of its transaction, so the row may appear this long after later ones."""

TOTALS = ("requests", *ROLLED_UP)
_E, _H, _D, _RUN, _RETIRED = (
    table.c for table in (usage_events, usage_hourly, usage_daily, usage_roll_up_runs, usage_retired_days)
)
OF_EVENTS = (func.count(), *(func.sum(_E[name]) for name in ROLLED_UP))
RESTED = (
    select(func.now() - _RUN.started_at >= _RUN.seconds * bindparam("rest") * literal_column("interval '1 second'"))
    .order_by(_RUN.started_at.desc())
    .limit(1)
)
LAST_RUN = select(func.coalesce(func.max(_RUN.started_at), literal_column("'-infinity'::timestamptz")))
AHEAD_RUNS = delete(usage_roll_up_runs).where(
    _RUN.started_at > func.clock_timestamp() + literal_column("interval '10 seconds'")
)
"""Deletes runs that began while the database's clock was ahead: until that time comes, they would hide new rows."""
SINCE_SET_BACK: ColumnElement[Any] = literal_column("interval '1 day'")
"""Rows up to this age are read again after such a run: rows may have been missed since the clock was set back."""
TOUCHED = (
    select(HOUR)
    .distinct()
    .where(
        _E.recorded_at
        >= func.least(
            LAST_RUN.scalar_subquery() - OVERLAP,
            case((bindparam("set_back"), func.now() - SINCE_SET_BACK), else_=literal_column("'infinity'::timestamptz")),
        ),
        DAY.not_in(select(_RETIRED.day)),
    )
    .order_by(HOUR)
)
_HOURS = bindparam("hours", type_=ARRAY(DateTime(timezone=True)))
OLD_RUNS = delete(usage_roll_up_runs).where(_RUN.started_at < func.now() - literal_column("interval '7 days'"))


def time_of(table: Table) -> ColumnElement[Any]:
    """The time column of a roll-up."""
    return next(iter(table.primary_key))


def group_of(source: Table, table: Table) -> list[ColumnElement[Any]]:
    """The columns of `source` that form the groups of `table`: those of its primary key, without the time."""
    own = [source.c[column.name] for column in table.primary_key if column is not time_of(table)]
    return [
        func.coalesce(column, literal_column("''")).label(column.name) if column.nullable else column for column in own
    ]


def _replacing(table: Table, totals: Select[Any]) -> Insert:
    """Replace existing totals. totals: the time, the group, and the sums, as the table's columns."""
    names = [*(column.name for column in table.primary_key), *TOTALS, "computed_at"]
    inserted = insert(table).from_select(names, totals)
    replaced = {name: inserted.excluded[name] for name in names if not table.c[name].primary_key}
    return inserted.on_conflict_do_update(index_elements=list(table.primary_key), set_=replaced)


HOURS = _replacing(
    usage_hourly,
    select(HOUR, *group_of(usage_events, usage_hourly), *OF_EVENTS, func.now())
    .where(IN_PARTITIONS, _E.billed, any_(_HOURS) == HOUR)
    .group_by(HOUR, *group_of(usage_events, usage_hourly)),
)
OF_DAY = _replacing(
    usage_daily,
    select(
        bindparam("day", type_=Date),
        *group_of(usage_hourly, usage_daily),
        *(func.sum(_H[name]) for name in TOTALS),
        func.now(),
    )
    .where(_H.hour >= bindparam("begin"), _H.hour < bindparam("end"))
    .group_by(*group_of(usage_hourly, usage_daily)),
)


def added_up(source: Table, table: Table, *conditions: ColumnElement[bool]) -> Select[Any]:
    """The rows of `table` (time, group and sums), added up from `source`, which has finer groups."""
    time, group = time_of(source), group_of(source, table)
    sums = (func.sum(source.c[name]).cast(BigInteger).label(name) for name in TOTALS)
    return select(time, *group, *sums).where(*conditions).group_by(time, *group)


def _coarser(table: Table, source: Table, condition: ColumnElement[bool]) -> Insert:
    return _replacing(table, added_up(source, table, condition).add_columns(func.now()))


_THIS_DAY = bindparam("day", type_=Date)
OF_WEEK = _replacing(
    usage_weekly,
    select(
        bindparam("week", type_=Date),
        *group_of(usage_daily, usage_weekly),
        *(func.sum(_D[name]) for name in TOTALS),
        func.now(),
    )
    .where(_D.day >= bindparam("week", type_=Date), _D.day < bindparam("next", type_=Date))
    .group_by(*group_of(usage_daily, usage_weekly)),
)
CLOSED_WEEKS = select(func.max(usage_week_closings.c.until))
WEEKS = select(utc_day(func.now()), CLOSED_WEEKS.scalar_subquery(), select(func.min(_D.day)).scalar_subquery())
CLOSE_WEEKS = insert(usage_week_closings).values(until=bindparam("until"))
OPEN_WEEKS = delete(usage_week_closings)
HOURS_OF_ORGANIZATIONS = _coarser(organization_usage_hourly, usage_hourly, any_(_HOURS) == _H.hour)
DAY_OF_PROJECTS = _coarser(project_usage_daily, usage_daily, usage_daily.c.day == _THIS_DAY)
DAY_OF_ORGANIZATIONS = _coarser(organization_usage_daily, project_usage_daily, project_usage_daily.c.day == _THIS_DAY)


def roll_up(database_url: str, *, rest: float = 0.0) -> int:
    """Bring all totals up to date, and return the number of rows of `gateway.usage_hourly` that were written.

    rest: do nothing until this multiple of the last run's duration has passed since it began. Raises psycopg.Error
    while the database is unreachable; nothing is written then, and the next run catches up.
    """
    began_s = time.monotonic()
    with connect(database_url) as connection:
        # A separate statement takes the lock, so that the next one sees what the previous holder committed.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_ID,))
        set_back = run(connection, AHEAD_RUNS).rowcount > 0
        if rest and not set_back and run(connection, RESTED, {"rest": rest}).fetchone() == (False,):
            return 0
        touched = [hour.astimezone(UTC) for (hour,) in run(connection, TOUCHED, {"set_back": set_back})]
        written = 0
        for day, hours in groupby(touched, key=lambda hour: hour.replace(hour=0)):
            written += _redo(connection, day, list(hours))
        _close_weeks(connection, touched)
        close_hours(connection, touched)
        connection.execute(
            "INSERT INTO gateway.usage_roll_up_runs VALUES (now(), %s, %s) ON CONFLICT DO NOTHING",
            (time.monotonic() - began_s, len(touched)),
        )
        run(connection, OLD_RUNS)
        return written


def _redo(connection: Connection, day: datetime, hours: list[datetime]) -> int:
    first, last = hours[0], hours[-1] + timedelta(hours=1)
    parameters = {"first": first_at(first.timestamp()), "last": first_at(last.timestamp()), "hours": hours}
    written = run(connection, HOURS, parameters).rowcount
    run(connection, HOURS_OF_ORGANIZATIONS, {"hours": hours})
    run(connection, OF_DAY, {"day": day.date(), "begin": day, "end": day + timedelta(days=1)})
    run(connection, DAY_OF_PROJECTS, {"day": day.date()})
    run(connection, DAY_OF_ORGANIZATIONS, {"day": day.date()})
    return written


def _close_weeks(connection: Connection, touched: Iterable[datetime]) -> None:
    """Close past weeks, and recompute closed ones with new rows. Their days must be up to date."""
    row = run(connection, WEEKS).fetchone()
    assert row is not None
    today, closed, first_day = row
    until = week_of(today)
    weeks = {week_of(hour.date()) for hour in touched if closed and hour.date() < closed}
    if closed is None or closed < until:
        begin = closed or week_of(first_day or today)
        weeks |= {begin + timedelta(days=days) for days in range(0, (until - begin).days, 7)}
        run(connection, OPEN_WEEKS)
        run(connection, CLOSE_WEEKS, {"until": until})
    for week in sorted(weeks):
        run(connection, OF_WEEK, {"week": week, "next": week + timedelta(days=7)})
