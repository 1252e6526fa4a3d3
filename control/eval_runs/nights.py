"""Nights of evals as rows: the verdict on each, and the workers' plan. A worker judges the nights
(control/eval_runs/night_judge.py)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy import case, func, select

from control.releases.machine import State
from control.releases.tables import releases
from storage.rows import columns_of, fetch, fetchrow, json_of, record_of
from storage.tables.evals import Decision, Status, night_plan, nights, runs

Connection: TypeAlias = "asyncpg.Connection[Any]"

SILENT_S = 300.0
"""A worker that has not reported for this long, and holds no run, counts as stopped."""
_REPORT = """
INSERT INTO evals.night_plan (reported_at, schedule, previous_at, next_at, items, slices, automatic_rollback)
VALUES (now(), $1, $2, $3, $4, $5::text::jsonb, $6)
    ON CONFLICT (single) DO UPDATE
   SET (reported_at, schedule, previous_at, next_at, items, slices, automatic_rollback)
     = (excluded.reported_at, excluded.schedule, excluded.previous_at, excluded.next_at, excluded.items,
        excluded.slices, excluded.automatic_rollback)
"""


class NightSlice(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one slice of a night. against: `history` or `version_before`, the reference that decided; null
    without a reference. nights: the number of nights up to this one that were judged together. items: the number of
    items that they share with the reference. difference, lower, upper: shares of items, negative if the slice is worse.
    score: this night's share of right answers."""

    slice: str
    decision: Decision
    reason: str
    against: str | None
    nights: int
    items: int
    clusters: int
    difference: float
    lower: float
    upper: float
    score: float | None


class EvalNight(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a model's night. changed: the differences from the previous version. version_since: the first of
    the consecutive nights with this version. rollback_release_id: after a failed night, the promoted release that can
    be rolled back; null if there is none."""

    run_id: UUID
    model: str
    pool: str
    night: date
    judged_at: datetime
    decision: Decision
    reason: str
    version_since: date | None
    changed: list[str]
    slices: list[NightSlice]
    rollback_release_id: UUID | None


class NightPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the workers of the queue `evals`. schedule: in crontab format, in UTC; empty for no nights.
    previous_at, next_at: the scheduled times before and after the report. items: of each slice. slices: by model."""

    reported_at: datetime
    schedule: str
    previous_at: datetime | None
    next_at: datetime | None
    items: int
    slices: dict[str, list[str]]
    automatic_rollback: bool


class ModelNight(msgspec.Struct, frozen=True, kw_only=True):
    """A model's most recent night. decision: null until the night is judged."""

    model: str
    pool: str | None
    night: date
    status: Status
    answered: int
    items: int
    decision: Decision | None
    reason: str | None


class NightStatus(msgspec.Struct, frozen=True, kw_only=True):
    """plan: null until a worker has reported. last: the most recent night of each model. missing: sentences that each
    name an obstacle to the next night or to its verdict."""

    plan: NightPlan | None
    last: list[ModelNight]
    missing: list[str]


_RELEASE = case(
    ((nights.c.decision == Decision.FAIL.value) & (releases.c.state == State.PROMOTED.value), nights.c.release_id),
    else_=None,
)
NIGHTS = select(*columns_of(EvalNight, nights, rollback_release_id=_RELEASE)).select_from(
    nights.outerjoin(releases, releases.c.id == nights.c.release_id)
)
"""Verdicts as `EvalNight`."""
# The newest nights are chosen first; otherwise the items of every night of a year would be counted.
LAST = """
SELECT newest.model, newest.pool, newest.night, newest.status, nights.decision, nights.reason,
       (SELECT coalesce(sum(items), 0) FROM evals.run_slices WHERE run_id = newest.id) AS items,
       (SELECT count(*) FROM evals.items WHERE run_id = newest.id) AS answered
  FROM (SELECT DISTINCT ON (model) id, model, pool, night, status
          FROM evals.runs WHERE night IS NOT NULL ORDER BY model, night DESC) AS newest
  LEFT JOIN evals.nights ON nights.run_id = newest.id
 ORDER BY newest.model
"""
# A run that did not finish proves nothing, and must not end the alert of the verdict before it.
_NEWEST = """
SELECT DISTINCT ON (model) run_id FROM evals.nights WHERE model = ANY ($1::text[])
 ORDER BY model, version_since IS NULL, night DESC
"""
_IS_WORKING = """
SELECT EXISTS (SELECT FROM evals.runs WHERE lease_until > now())
    OR EXISTS (SELECT FROM evals.comparisons WHERE lease_until > now())
"""


async def newest_by_model(connection: Connection, models: Collection[str]) -> list[EvalNight]:
    """The last judged night of each model; one that did not finish if there is no other."""
    newest = [row["run_id"] for row in await connection.fetch(_NEWEST, list(models))]
    found = await fetch(connection, NIGHTS.where(nights.c.run_id.in_(newest)).order_by(nights.c.model))
    return [night_of(row) for row in found]


def night_of(row: asyncpg.Record) -> EvalNight:
    """A row of `NIGHTS`."""
    return msgspec.convert(dict(row) | {"slices": json_of(row["slices"])}, EvalNight)


async def report(
    connection: Connection,
    *,
    schedule: str,
    previous_at: datetime | None,
    next_at: datetime | None,
    items: int,
    slices: Mapping[str, Sequence[str]],
    automatic_rollback: bool,
) -> None:
    """Report a worker's settings."""
    encoded = msgspec.json.encode(slices).decode()
    await connection.execute(_REPORT, schedule, previous_at, next_at, items, encoded, automatic_rollback)


async def status(connection: Connection) -> NightStatus:
    """The previous and next nights, and their obstacles."""
    row = await fetchrow(connection, select(*columns_of(NightPlan, night_plan)))
    plan = None if row is None else msgspec.convert(dict(row) | {"slices": json_of(row["slices"])}, NightPlan)
    last = [record_of(ModelNight, row) for row in await connection.fetch(LAST)]
    now: datetime = await connection.fetchval("SELECT now()")
    is_working: bool = await connection.fetchval(_IS_WORKING)
    return NightStatus(plan=plan, last=last, missing=list(missing(plan, last, now, is_working=is_working)))


def missing(
    plan: NightPlan | None, last: Sequence[ModelNight], now: datetime, *, is_working: bool = False
) -> Iterator[str]:
    """The obstacles that keep nights from running, or the last ones from a verdict. Pure.

    is_working: whether a worker holds a run or a comparison. It reports only between them, and one may take hours.
    """
    if plan is None:
        yield "no worker of the queue `evals` has started since this release was installed"
        return
    if not is_working and (now - plan.reported_at).total_seconds() > SILENT_S:
        yield f"no worker of the queue `evals` has reported since {plan.reported_at:%Y-%m-%d %H:%M} UTC; start one"
    if not plan.schedule:
        yield "evals.schedule is empty, so no nightly run is scheduled; '0 2 * * *' schedules one at two o'clock UTC"
        return
    if not plan.slices:
        yield "no model has slices, so there is nothing to ask"
    newest = {one.model: one for one in last}
    for model in plan.slices:
        found = newest.get(model)
        if found is None:
            if plan.previous_at is not None:  # otherwise none has been due yet
                yield f"{model}: no nightly run has started yet"
        elif plan.previous_at is not None and found.night < plan.previous_at.date():
            yield (
                f"{model}: the night of {plan.previous_at:%Y-%m-%d} was skipped: no worker of the queue `evals` ran "
                f"at {plan.previous_at:%H:%M} UTC"
            )
        elif found.decision is Decision.INCONCLUSIVE:
            yield f"{model}: the night of {found.night} decided nothing: {found.reason}"


async def suspect(
    connection: Connection, model: str, pool: str, night: date, within_nights: int
) -> tuple[UUID, str] | None:
    """The release whose promotion made this pool the model's within this many nights before this one, and the pool that
    it replaced."""
    since = night - timedelta(days=within_nights)
    columns = releases.c
    statement = (
        select(columns.id, columns.baseline_pool)
        .where(columns.model == model, columns.candidate_pool == pool, columns.state == State.PROMOTED.value)
        .where(func.date(func.timezone("UTC", columns.ended_at)) >= since)
        .order_by(columns.ended_at.desc())
        .limit(1)
    )
    row = await fetchrow(connection, statement)
    return None if row is None else (row["id"], row["baseline_pool"])


async def unjudged(connection: Connection, days: int) -> list[UUID]:
    """Runs of the nights of the last days that have ended without a verdict, the oldest first."""
    statement = (
        select(runs.c.id)
        .where(
            runs.c.night.is_not(None),
            runs.c.night > func.current_date() - days,
            runs.c.ended_at.is_not(None),
            ~select(nights.c.run_id).where(nights.c.run_id == runs.c.id).exists(),
        )
        .order_by(runs.c.night, runs.c.id)
    )
    return [row["id"] for row in await fetch(connection, statement)]
