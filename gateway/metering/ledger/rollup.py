"""Totals by hour and by day of what is billed, recomputed from the ledger. Called by the worker's scheduled task.

Whole hours and days are replaced, never added to, so running it twice, late, or from two workers at once changes
nothing. Rows may reach the ledger long after their hour (a gateway was away): every hour that has news since the last
run is redone. The hour is that in which the request arrived.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Date,
    DateTime,
    Select,
    Table,
    any_,
    bindparam,
    delete,
    func,
    select,
)
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.sql.expression import literal_column

from gateway.metering.journal.request_id import first_at
from gateway.metering.ledger.events import DAY, HOUR, IN_PARTITIONS
from gateway.metering.ledger.worker_connection import Connection, connect, run
from gateway.metering.tables import (
    ROLLED_UP,
    usage_daily,
    usage_events,
    usage_hourly,
    usage_retired_days,
    usage_roll_up_runs,
)

LOCK_ID = 0x726F6C6C
"""Key of the advisory lock, the bytes of `roll`."""
OVERLAP: ColumnElement[Any] = literal_column("interval '10 minutes'")
"""A row's recorded_at is when its transaction began, so it may appear this much after a later one was already seen."""

TOTALS = ("requests", *ROLLED_UP)
_E, _H, _RUN, _RETIRED = usage_events.c, usage_hourly.c, usage_roll_up_runs.c, usage_retired_days.c
OF_EVENTS = (func.count(), *(func.sum(_E[name]) for name in ROLLED_UP))
RESTED = (
    select(func.now() - _RUN.started_at >= _RUN.seconds * bindparam("rest") * literal_column("interval '1 second'"))
    .order_by(_RUN.started_at.desc())
    .limit(1)
)
LAST_RUN = select(func.coalesce(func.max(_RUN.started_at), literal_column("'-infinity'::timestamptz")))
TOUCHED = (
    select(HOUR)
    .distinct()
    .where(
        _E.recorded_at >= LAST_RUN.scalar_subquery() - OVERLAP,
        DAY.not_in(select(_RETIRED.day)),
    )
    .order_by(HOUR)
)
OLD_RUNS = delete(usage_roll_up_runs).where(_RUN.started_at < func.now() - literal_column("interval '7 days'"))


def group_of(table: Table) -> list[ColumnElement[Any]]:
    """What totals are told apart by, beside their time: the rest of a roll-up's primary key."""
    own = [table.c[column.name] for column in usage_hourly.primary_key if column.name != "hour"]
    return [
        func.coalesce(column, literal_column("''")).label(column.name) if column.nullable else column for column in own
    ]


def _replacing(table: Table, totals: Select[Any]) -> Insert:
    """Totals in the place of those there were. totals: the time, the group, and the sums, as the table's columns."""
    names = [*(column.name for column in table.primary_key), *TOTALS, "computed_at"]
    inserted = insert(table).from_select(names, totals)
    replaced = {name: inserted.excluded[name] for name in names if not table.c[name].primary_key}
    return inserted.on_conflict_do_update(index_elements=list(table.primary_key), set_=replaced)


HOURS = _replacing(
    usage_hourly,
    select(HOUR, *group_of(usage_events), *OF_EVENTS, func.now())
    .where(IN_PARTITIONS, _E.billed, any_(bindparam("hours", type_=ARRAY(DateTime(timezone=True)))) == HOUR)
    .group_by(HOUR, *group_of(usage_events)),
)
OF_DAY = _replacing(
    usage_daily,
    select(bindparam("day", type_=Date), *group_of(usage_hourly), *(func.sum(_H[name]) for name in TOTALS), func.now())
    .where(_H.hour >= bindparam("begin"), _H.hour < bindparam("end"))
    .group_by(*group_of(usage_hourly)),
)


def roll_up(database_url: str, *, rest: float = 0.0) -> int:
    """Bring `gateway.usage_hourly` and `gateway.usage_daily` up to date; returns the number of hourly rows written.

    rest: nothing is done before that many times as long as the last run took have passed since it began.
    Raises psycopg.Error when the database is away; nothing is written then, and the next run makes up for it.
    """
    began_s = time.monotonic()
    with connect(database_url) as connection:
        # Taken in a statement of its own: the next one then sees what the previous holder committed.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_ID,))
        if rest and run(connection, RESTED, {"rest": rest}).fetchone() == (False,):
            return 0
        touched = [hour.astimezone(UTC) for (hour,) in run(connection, TOUCHED)]
        written = 0
        for day, found in groupby(touched, key=lambda hour: hour.replace(hour=0)):
            written += _redo(connection, day, list(found))
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
    run(connection, OF_DAY, {"day": day.date(), "begin": day, "end": day + timedelta(days=1)})
    return written
