"""Scores of slices over time: each run's, with its interval."""

from __future__ import annotations

from datetime import date, datetime
from uuid import UUID

import msgspec
from sqlalchemy import Double, cast, func, select

from control.api.call import AdminCall
from control.api.pages import page_of
from control.api.schemas import ModelName, Name, Page, PageQuery
from control.evals import store
from evals.statistics.interval import Estimate, Sums, share
from storage.rows import columns_of, equal, fetch
from storage.tables.evals import Arm, Status, comparisons, items, model_versions, run_slices, runs, slice_versions


class SliceScore(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of a run that has ended. score: the share of right answers, 0 to 1, with a 95 % interval that treats
    templates, not items, as independent. The interval is null once items were deleted. goal: the required score."""

    run_id: UUID
    created_at: datetime
    model: str
    pool: str | None
    engine_model: str | None
    arm: Arm | None
    night: date | None
    slice: str
    slice_version: str | None
    goal: float | None
    answered: int
    score: Estimate


class ScoreQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    model: ModelName | None = None
    slice: Name | None = None


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    run_id: UUID
    created_at: datetime
    model: str
    pool: str | None
    engine_model: str | None
    arm: Arm | None
    night: date | None
    slice: str
    slice_version: str | None
    goal: float | None
    forgotten_items: int
    forgotten_score: float


async def list_slice_scores(call: AdminCall, query: ScoreQuery) -> Page[SliceScore]:
    """List the scores of slices in completed runs, newest first."""
    columns = columns_of(
        _Asked,
        run_slices,
        runs,
        model_versions,
        slice_versions,
        slice=run_slices.c.slice,
        slice_version=slice_versions.c.version,
        model=runs.c.model,
        pool=func.coalesce(runs.c.pool, model_versions.c.pool),
        created_at=runs.c.created_at,
    )
    of_comparison = (runs.c.id == comparisons.c.baseline_run) | (runs.c.id == comparisons.c.candidate_run)
    statement = (
        select(*columns)
        .select_from(
            run_slices.join(runs, runs.c.id == run_slices.c.run_id)
            .outerjoin(model_versions, model_versions.c.id == runs.c.model_version_id)
            .outerjoin(slice_versions, slice_versions.c.id == run_slices.c.slice_version_id)
            .outerjoin(comparisons, of_comparison)
        )
        .where(
            store.status_of_run() == Status.DONE.value,
            equal(runs.c.model, query.model),
            equal(run_slices.c.slice, query.slice),
        )
    )
    order = runs.c.created_at, run_slices.c.run_id, run_slices.c.slice
    page = await page_of(call.connection, _Asked, statement, query, *order)
    sums = await _sums(call, [each.run_id for each in page.data])
    shown = [_shown(each, sums.get((each.run_id, each.slice))) for each in page.data]
    return Page(data=shown, has_more=page.has_more, next_cursor=page.next_cursor)


async def _sums(call: AdminCall, run_ids: list[UUID]) -> dict[tuple[UUID, str], Sums]:
    """Sums by run and slice, over the templates of the items."""
    item = items.c
    by_cluster = (
        select(item.run_id, item.slice, cast(func.count(), Double).label("n"), func.sum(item.score).label("x"))
        .where(item.run_id.in_(run_ids))
        .group_by(item.run_id, item.slice, item.cluster)
        .subquery()
    )
    n, x = by_cluster.c.n, by_cluster.c.x
    parts = {"n": n, "x": x, "xx": x * x, "xn": x * n, "nn": n * n}
    statement = select(
        by_cluster.c.run_id,
        by_cluster.c.slice,
        func.count().label("units"),
        *(func.sum(each).label(name) for name, each in parts.items()),
    ).group_by(by_cluster.c.run_id, by_cluster.c.slice)
    return {
        (row["run_id"], row["slice"]): Sums(*(row[name] for name in Sums.__struct_fields__))
        for row in await fetch(call.connection, statement)
    }


def _shown(row: _Asked, sums: Sums | None) -> SliceScore:
    values = msgspec.structs.asdict(row)
    forgotten, forgotten_score = values.pop("forgotten_items"), values.pop("forgotten_score")
    kept = sums or Sums(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    answered = round(kept.n) + forgotten
    score = share(kept)
    if forgotten:
        score = Estimate((forgotten_score + kept.x) / answered, None, None, answered, kept.units)
    return SliceScore(**values, answered=answered, score=score)
