"""Recomputes from the traces how many requests of each minute kept their objectives.

A run replaces whole minutes, never adds to them, so running it twice, late, or from two workers at once changes
nothing. A request belongs to the minute in which it arrived. A long answer reaches its minute only at its end, and
every minute with news since the last run is recomputed. Minutes whose traces may already be deleted stay unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import (
    Integer,
    Text,
    and_,
    bindparam,
    delete,
    func,
    select,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql.expression import literal_column

from contracts.dated_request_id import first_at
from control.slo.judged import DATED, MINUTE, VERSION, counts, judged
from control.slo.request_rollup import forget as forget_requests
from control.slo.request_rollup import redo_hours as redo_requests
from control.slo.serving_rollup import forget, redo_hours, redo_minutes
from control.slo.tables import COUNTS, slo_minutes, slo_objectives, slo_roll_up_runs
from storage.tables.core import request_traces
from storage.worker_connection import Connection, connect, run

LOCK_ID = 0x736C6F72
"""Key of the advisory lock, the bytes of `slor`."""
OVERLAP_S = 30
"""A row's recorded_at is the start of its transaction, which gateways give up after five seconds (serving/trace.py)."""
MAX_MINUTES = 60
"""Minutes recomputed by one statement."""
MINUTE_LONG = timedelta(minutes=1)
MARGIN = timedelta(hours=1)
"""Distance of the oldest recomputed minute from the limit of retention: request ids follow gateways' clocks."""

_T, _RUN = request_traces.c, slo_roll_up_runs.c
_LAST_RUN = select(func.coalesce(func.max(_RUN.started_at), literal_column("'-infinity'::timestamptz")))
AHEAD_RUNS = delete(slo_roll_up_runs).where(
    _RUN.started_at > func.clock_timestamp() + literal_column("interval '10 seconds'")
)
"""Runs that began when the database's clock was ahead would hide new rows until that time is reached again."""
TOUCHED = (
    select(MINUTE)
    .distinct()
    .where(
        DATED,
        _T.recorded_at >= _LAST_RUN.scalar_subquery() - literal_column(f"interval '{OVERLAP_S} seconds'"),
        _T.request_id >= bindparam("oldest", type_=Text),
    )
    .order_by(MINUTE)
)
VERSIONS = select(slo_objectives.c.valid_from, slo_objectives.c.version).distinct().order_by(slo_objectives.c.version)
GROUP = tuple(column.name for column in slo_minutes.primary_key)
_JUDGED = judged(
    VERSION, and_(_T.request_id >= bindparam("first", type_=Text), _T.request_id < bindparam("past", type_=Text))
)
CLEAR = delete(slo_minutes).where(slo_minutes.c.minute >= bindparam("begin"), slo_minutes.c.minute < bindparam("end"))
FILL = insert(slo_minutes).from_select(
    [*GROUP, "version", *COUNTS],
    select(
        *(_JUDGED.c[name] for name in GROUP),
        VERSION,
        *(value for _, value in sorted(counts(_JUDGED).items(), key=lambda item: COUNTS.index(item[0]))),
    ).group_by(*(_JUDGED.c[name] for name in GROUP)),
)
FORGET = delete(slo_minutes).where(
    slo_minutes.c.minute < func.now() - func.make_interval(0, 0, 0, bindparam("days", type_=Integer))
)
OLD_RUNS = delete(slo_roll_up_runs).where(_RUN.started_at < func.now() - literal_column("interval '7 days'"))


def roll_up(database_url: str, *, trace_retention_days: int, retention_days: int | None = None) -> int:
    """Bring `gateway.slo_minutes` up to date; returns the number of recomputed minutes.

    trace_retention_days: how long traces certainly exist. retention_days: of the minutes, which are then deleted; None
    to delete none now. Without objectives, nothing is done. Raises psycopg.Error if the database is unavailable; then
    nothing is written, and the next run catches up.
    """
    began_s = time.monotonic()
    with connect(database_url) as connection:
        # A separate statement, so that the next one sees what the lock's previous holder committed.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_ID,))
        versions = [(since.astimezone(UTC), version) for since, version in run(connection, VERSIONS)]
        if not versions:
            return 0
        run(connection, AHEAD_RUNS)
        oldest = datetime.now(UTC) - timedelta(days=trace_retention_days) + MARGIN
        whole = oldest.replace(second=0, microsecond=0) + MINUTE_LONG
        touched = [each.astimezone(UTC) for (each,) in run(connection, TOUCHED, {"oldest": _first(whole)})]
        for begin, end in spans(touched, [since for since, _ in versions]):
            _redo(connection, version_at(versions, begin), begin, end)
        redo_hours(connection, touched)
        # an hour that has lost some of its traces stays unchanged
        redo_requests(connection, sorted({hour for each in touched if (hour := each.replace(minute=0)) >= whole}))
        connection.execute(
            "INSERT INTO gateway.slo_roll_up_runs VALUES (now(), %s, %s) ON CONFLICT DO NOTHING",
            (time.monotonic() - began_s, len(touched)),
        )
        run(connection, OLD_RUNS)
        if retention_days is not None:
            run(connection, FORGET, {"days": retention_days})
            forget(connection, retention_days)
            forget_requests(connection, trace_retention_days)
        return len(touched)


def version_at(versions: Sequence[tuple[datetime, int]], minute: datetime) -> int:
    """The version in force at a minute; before the first, the first. versions: start and number of each, in order."""
    in_force = versions[0][1]
    for since, version in versions:
        if since <= minute:
            in_force = version
    return in_force


def spans(touched: Sequence[datetime], edges: Sequence[datetime]) -> Iterator[tuple[datetime, datetime]]:
    """Rising minutes as spans without gaps, each from its first minute to the end of its last one. No span crosses an
    edge or is longer than `MAX_MINUTES`."""
    begin = end = None
    for minute in touched:
        if begin is None or minute != end or minute in edges or minute - begin >= MAX_MINUTES * MINUTE_LONG:
            if begin is not None and end is not None:
                yield begin, end
            begin = minute
        end = minute + MINUTE_LONG
    if begin is not None and end is not None:
        yield begin, end


def _redo(connection: Connection, version: int, begin: datetime, end: datetime) -> None:
    run(connection, CLEAR, {"begin": begin, "end": end})
    run(connection, FILL, {"version": version, "first": _first(begin), "past": _first(end)})
    redo_minutes(connection, begin, end)


def _first(minute: datetime) -> str:
    return first_at(minute.timestamp())
