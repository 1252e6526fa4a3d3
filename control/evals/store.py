"""Queues, reads and cancels runs and comparisons as rows. A worker (control/eval_runs/) does the work, by leases.

Every function works on a connection that may be in the caller's transaction: a release queues its comparison in the
transaction that begins it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any, TypeAlias
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Meta
from sqlalchemy import ColumnElement, func, or_, select

from contracts.errors import Conflict, NotFound
from control.slices.bounds import MAX_ITEMS, Items, Margin
from storage.rows import columns_of, fetchrow, json_of, record_of
from storage.tables.evals import ENDED, Arm, Decision, Status, comparisons, items, model_versions, run_slices, runs

Connection: TypeAlias = "asyncpg.Connection[Any]"

SEEDS_A_DAY = MAX_ITEMS
"""More seeds than a run uses, so it stays out of the next day's. Even the first day's are far beyond all seeds of
development and of final figures (evals/slices/split.py)."""


PANEL_PARTS = 4
"""Nights after which the items of a night are asked again: each item then has earlier scores for a comparison, and four
consecutive nights share no items."""
_PANEL_DAY = date(2020, 1, 1).toordinal()
"""The first day whose seeds are the panel's."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rule by which a comparison decides on each slice."""

    margin: Margin = 0.02
    """How much lower the candidate's share of right answers may be, from 0 to 1."""
    margins: dict[str, Margin] = {}
    """Margins of single slices, in place of `margin`."""
    alpha: Annotated[float, Meta(gt=0, le=0.5)] = 0.05
    """The maximum probability that a candidate which is worse by the margin passes."""
    fail_alpha: Annotated[float, Meta(gt=0, le=0.5)] | None = None
    """The maximum probability, over all slices, that a candidate as good as the baseline fails; by default, alpha."""
    power: Annotated[float, Meta(ge=0.5, lt=1)] = 0.8
    """The probability that a candidate as good as the baseline passes. The number of items is planned for it."""
    correlation: Annotated[float, Meta(ge=0, le=1)] = 0.05
    """Assumed correlation of rare losses within a template."""
    first_look: Items = 200
    """The number of items of each slice that each pool answers before the first look. The number doubles with every
    look."""


class SliceProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of a run. score_sum: the sum of the answers' scores. goal: null until the slice begins. refused_items:
    the stored items that the model refused."""

    slice: str
    slice_version: str | None
    about: str | None
    goal: float | None
    items: int
    answered: int
    score_sum: float
    refused_items: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its progress. pool: null if the router chose the pool. arm, comparison_id: of a run that belongs to a
    comparison."""

    id: UUID
    model: str
    pool: str | None
    arm: Arm | None
    comparison_id: UUID | None
    engine_model: str | None
    status: Status
    first_seed: int
    night: date | None
    items: int
    answered: int
    error: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison. decision: null until it has ended. verdict: the current result by slice, with its numbers."""

    id: UUID
    model: str
    baseline_run: UUID
    candidate_run: UUID
    baseline_pool: str
    candidate_pool: str
    release_id: UUID | None
    status: Status
    rule: Rule
    budget_items: int
    decision: Decision | None
    verdict: dict[str, Any] | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


_QUEUE_RUN = """
INSERT INTO evals.runs (model, pool, arm, first_seed, night, version) VALUES ($1, $2, $3, $4, $5, $6::text::jsonb)
    ON CONFLICT (model, night) WHERE night IS NOT NULL DO NOTHING RETURNING id
"""
_QUEUE_SLICES = "INSERT INTO evals.run_slices (run_id, slice, items) SELECT $1, unnest($2::text[]), unnest($3::int[])"
_QUEUE_COMPARISON = """
INSERT INTO evals.comparisons (model, baseline_run, candidate_run, rule, budget_items, release_id)
VALUES ($1, $2, $3, $4, $5, $6) RETURNING id
"""
_OF_COMPARISON = or_(runs.c.id == comparisons.c.baseline_run, runs.c.id == comparisons.c.candidate_run)
_PLANNED = select(func.coalesce(func.sum(run_slices.c["items"]), 0)).where(run_slices.c.run_id == runs.c.id)
_FORGOTTEN = select(func.coalesce(func.sum(run_slices.c.forgotten_items), 0)).where(run_slices.c.run_id == runs.c.id)
_KEPT = select(func.count()).select_from(items).where(items.c.run_id == runs.c.id)


def _of_either(name: str) -> ColumnElement[Any]:
    """The comparison's column, or else the run's: a comparison's runs are worked on as one."""
    return func.coalesce(comparisons.c[name], runs.c[name])


def status_of_run() -> ColumnElement[str]:
    """The status of a run in `RUNS`."""
    return _of_either("status")


RUNS = select(
    *columns_of(
        Run,
        runs,
        model_versions,
        comparison_id=comparisons.c.id,
        items=_PLANNED.scalar_subquery(),
        answered=_FORGOTTEN.scalar_subquery() + _KEPT.scalar_subquery(),
        **{name: _of_either(name) for name in ("status", "error", "started_at", "ended_at")},
    )
).select_from(runs.outerjoin(model_versions).outerjoin(comparisons, _OF_COMPARISON))
"""Runs as `Run`."""
_BASELINE, _CANDIDATE = runs.alias("baseline"), runs.alias("candidate")
COMPARISONS = select(
    *columns_of(Comparison, comparisons, baseline_pool=_BASELINE.c.pool, candidate_pool=_CANDIDATE.c.pool)
).select_from(
    comparisons.join(_BASELINE, _BASELINE.c.id == comparisons.c.baseline_run).join(
        _CANDIDATE, _CANDIDATE.c.id == comparisons.c.candidate_run
    )
)
"""Comparisons as `Comparison`."""
_SLICES = """
SELECT slice, version AS slice_version, about, goal, items, forgotten_items + answered AS answered,
       forgotten_score + correct AS score_sum, refused_items
  FROM evals.run_slices
  LEFT JOIN (SELECT id, version, about, goal FROM evals.slice_versions) AS version ON version.id = slice_version_id
 CROSS JOIN LATERAL (SELECT count(*) AS answered, coalesce(sum(score), 0) AS correct,
                             count(error_code) AS refused_items
                       FROM evals.items
                      WHERE items.run_id = run_slices.run_id AND items.slice = run_slices.slice) AS counted
 WHERE run_id = $1 ORDER BY slice
"""
# An unclaimed run ends at once; a worker that holds one sees the cancellation.
_CANCEL = """
UPDATE evals.{table}
   SET cancel_asked_at = coalesce(cancel_asked_at, now()),
       status = CASE WHEN status = 'queued' THEN 'cancelled' ELSE status END,
       ended_at = CASE WHEN status = 'queued' THEN now() END
 WHERE id = $1 AND status IN ('queued', 'running')
"""


def rotating_seed(day: date) -> int:
    """The first seed of a day; no two days share a seed."""
    return day.toordinal() * SEEDS_A_DAY


def panel_seed(night: date) -> int:
    """The first seed of a night's part of the panel, which is asked again `PANEL_PARTS` nights later."""
    return (_PANEL_DAY + night.toordinal() % PANEL_PARTS) * SEEDS_A_DAY


async def queue_run(
    connection: Connection,
    *,
    model: str,
    slices: Mapping[str, int],
    pool: str | None = None,
    first_seed: int | None = None,
) -> UUID:
    """Queue a run; returns its id. slices: items to ask of each. first_seed: the day's unless given."""
    async with connection.transaction():
        made = await _queue_run(connection, model, pool, None, slices, first_seed)
        assert made is not None  # only a night's run may exist already
        return made


async def queue_night(
    connection: Connection,
    *,
    model: str,
    pool: str,
    slices: Mapping[str, int],
    night: date,
    version: Mapping[str, str],
) -> UUID | None:
    """Queue a night's run of the panel's part; returns its id, None if that model's run is queued already.

    version: the model's (`control.evals.target.version_of`).
    """
    async with connection.transaction():
        return await _queue_run(connection, model, pool, None, slices, panel_seed(night), night, version)


async def queue_comparison(
    connection: Connection,
    *,
    model: str,
    baseline_pool: str,
    candidate_pool: str,
    slices: Sequence[str],
    budget: int = 1_600,
    rule: Rule | None = None,
    first_seed: int | None = None,
    release_id: UUID | None = None,
) -> UUID:
    """Queue a comparison of two pools over the same items; returns its id. budget: most items of each slice, of
    either pool. first_seed: the day's unless given.
    """
    rule = rule or Rule()
    planned = {name: min(rule.first_look, budget) for name in slices}
    async with connection.transaction():
        baseline = await _queue_run(connection, model, baseline_pool, Arm.BASELINE, planned, first_seed)
        candidate = await _queue_run(connection, model, candidate_pool, Arm.CANDIDATE, planned, first_seed)
        encoded = msgspec.json.encode(rule).decode()
        values = (model, baseline, candidate, encoded, budget, release_id)
        made: UUID = await connection.fetchval(_QUEUE_COMPARISON, *values)
        return made


async def _queue_run(
    connection: Connection,
    model: str,
    pool: str | None,
    arm: Arm | None,
    slices: Mapping[str, int],
    first_seed: int | None,
    night: date | None = None,
    version: Mapping[str, str] | None = None,
) -> UUID | None:
    seed = rotating_seed(datetime.now(UTC).date()) if first_seed is None else first_seed
    encoded = None if version is None else msgspec.json.encode(version).decode()
    run_id: UUID | None = await connection.fetchval(_QUEUE_RUN, model, pool, arm, seed, night, encoded)
    if run_id is not None:
        await connection.execute(_QUEUE_SLICES, run_id, list(slices), list(slices.values()))
    return run_id


async def run(connection: Connection, run_id: UUID) -> Run:
    """A run. Raises NotFound."""
    row = await fetchrow(connection, RUNS.where(runs.c.id == run_id))
    if row is None:
        raise NotFound(f"There is no run {run_id}.")
    return record_of(Run, row)


async def slices_of(connection: Connection, run_id: UUID) -> list[SliceProgress]:
    """A run's slices, by name."""
    return [record_of(SliceProgress, row) for row in await connection.fetch(_SLICES, run_id)]


async def comparison(connection: Connection, comparison_id: UUID) -> Comparison:
    """A comparison. Raises NotFound."""
    row = await fetchrow(connection, COMPARISONS.where(comparisons.c.id == comparison_id))
    if row is None:
        raise NotFound(f"There is no comparison {comparison_id}.")
    return msgspec.convert(dict(row) | {name: json_of(row[name]) for name in ("rule", "verdict")}, Comparison)


async def cancel_run(connection: Connection, run_id: UUID) -> Run:
    """Cancel a run; its answers are kept. Raises NotFound, and Conflict for one that has ended or belongs to a
    comparison."""
    found = await run(connection, run_id)
    if found.comparison_id is not None:
        raise Conflict(f"The run {run_id} belongs to the comparison {found.comparison_id}; cancel that one.")
    _require_unended("run", run_id, found.status)
    await connection.execute(_CANCEL.format(table="runs"), run_id)
    return await run(connection, run_id)


async def cancel_comparison(connection: Connection, comparison_id: UUID) -> Comparison:
    """Cancel a comparison, without a decision. Raises NotFound, and Conflict for one that has ended."""
    found = await comparison(connection, comparison_id)
    _require_unended("comparison", comparison_id, found.status)
    await connection.execute(_CANCEL.format(table="comparisons"), comparison_id)
    return await comparison(connection, comparison_id)


def _require_unended(kind: str, id_: UUID, status: Status) -> None:
    if status in ENDED:
        raise Conflict(f"The {kind} {id_} has ended: it is {status.value}.")
