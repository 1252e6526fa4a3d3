"""Runs of evals and comparisons, which operators queue, read and end. Workers do the work."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from sqlalchemy import select

from control.api.call import AdminCall
from control.api.pages import page_of
from control.api.schemas import Body, ModelName, Name, Page, PageQuery
from control.evals import store
from control.evals.store import Comparison, Rule, Run, SliceProgress
from control.evals.target import target_of
from control.fleet.fleet_edit import newest_fleet
from control.fleet.named import model_named
from control.slices.bounds import Items
from control.slices.startable import require_asked
from storage.rows import columns_of, equal
from storage.tables import evals as tables
from storage.tables.evals import Status

SliceNames = Annotated[list[Name], Meta(min_length=1, max_length=200)]
Seed = Annotated[int, Meta(ge=0, le=2**53)]


class NewRun(Body, frozen=True, kw_only=True):
    """slices: the slices to run, with `items` items each. pool: the pool that answers; by default, the router chooses.
    first_seed: the seed of the first item; the next items use the next seeds. By default, it follows from the date, so
    each day has other items."""

    model: ModelName
    slices: SliceNames
    items: Items = 100
    pool: Name | None = None
    first_seed: Seed | None = None


class NewComparison(Body, frozen=True, kw_only=True):
    """Both pools answer the same items. budget_items: the maximum number of items of each slice, for either pool. rule:
    the rule of the decision. first_seed: see `NewRun`."""

    model: ModelName
    baseline_pool: Name
    candidate_pool: Name
    slices: SliceNames
    budget_items: Items = 1_600
    rule: Rule = Rule()
    first_seed: Seed | None = None


class RunInFull(msgspec.Struct, frozen=True, kw_only=True):
    """A run with all its slices."""

    run: Run
    slices: list[SliceProgress]


class EvalItem(msgspec.Struct, frozen=True, kw_only=True):
    """An answered item of a run. score: 0 to 1. error_code: the code of the refusal that replaced the answer."""

    slice: str
    seed: int
    cluster: str
    answer: str
    score: float
    request_id: str | None
    latency_ms: float
    error_code: str | None
    answered_at: datetime


class RunQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    model: ModelName | None = None
    status: Status | None = None


class ItemQuery(PageQuery, frozen=True, kw_only=True):
    """Filters. below: only items with a lower score."""

    slice: Name | None = None
    below: Annotated[float, Meta(ge=0, le=1)] | None = None


async def list_eval_runs(call: AdminCall, query: RunQuery) -> Page[Run]:
    """List runs, including those of comparisons, newest first."""
    table = tables.runs.c
    statement = store.RUNS.where(equal(table.model, query.model), equal(store.status_of_run(), query.status))
    return await page_of(call.connection, Run, statement, query, table.created_at, table.id)


async def create_eval_run(call: AdminCall, body: NewRun) -> Run:
    """Queue a run. A worker of the queue `evals` starts it within seconds."""
    await _require_target(call, body.model, body.slices, pool=body.pool)
    run_id = await store.queue_run(
        call.connection,
        model=body.model,
        pool=body.pool,
        slices=dict.fromkeys(body.slices, body.items),
        first_seed=body.first_seed,
    )
    made = await store.run(call.connection, run_id)
    call.audit("eval_run.create", run_id, organization_id=None, after=made)
    return made


async def get_eval_run(call: AdminCall, run_id: UUID) -> RunInFull:
    """Get a run, with the progress and score of each slice."""
    return RunInFull(
        run=await store.run(call.connection, run_id), slices=await store.slices_of(call.connection, run_id)
    )


async def list_eval_items(call: AdminCall, run_id: UUID, query: ItemQuery) -> Page[EvalItem]:
    """List a run's items and their answers."""
    await store.run(call.connection, run_id)
    table = tables.items.c
    statement = select(*columns_of(EvalItem, tables.items)).where(
        table.run_id == run_id, equal(table.slice, query.slice)
    )
    if query.below is not None:
        statement = statement.where(table.score < query.below)
    return await page_of(call.connection, EvalItem, statement, query, table.answered_at, table.slice, table.seed)


async def cancel_eval_run(call: AdminCall, run_id: UUID) -> Run:
    """Cancel a run and keep its answers. The response is 409 if the run has ended or belongs to a comparison."""
    before = await store.run(call.connection, run_id)
    after = await store.cancel_run(call.connection, run_id)
    call.audit("eval_run.cancel", run_id, organization_id=None, before=before, after=after)
    return after


async def list_eval_comparisons(call: AdminCall, query: RunQuery) -> Page[Comparison]:
    """List comparisons, newest first."""
    table = tables.comparisons.c
    statement = store.COMPARISONS.where(equal(table.model, query.model), equal(table.status, query.status))
    return await page_of(call.connection, Comparison, statement, query, table.created_at, table.id)


async def create_eval_comparison(call: AdminCall, body: NewComparison) -> Comparison:
    """Queue a comparison of two pools on the same items. It ends with `pass`, `fail` or `inconclusive`."""
    require_asked("rule.margins", body.rule.margins, body.slices)
    pools = {"baseline_pool": body.baseline_pool, "candidate_pool": body.candidate_pool}
    await _require_target(call, body.model, body.slices, **pools)
    comparison_id = await store.queue_comparison(
        call.connection,
        model=body.model,
        baseline_pool=body.baseline_pool,
        candidate_pool=body.candidate_pool,
        slices=body.slices,
        budget=body.budget_items,
        rule=body.rule,
        first_seed=body.first_seed,
    )
    made = await store.comparison(call.connection, comparison_id)
    call.audit("eval_comparison.create", comparison_id, organization_id=None, after=made)
    return made


async def get_eval_comparison(call: AdminCall, comparison_id: UUID) -> Comparison:
    """Get a comparison, with the current verdict on each slice."""
    return await store.comparison(call.connection, comparison_id)


async def cancel_eval_comparison(call: AdminCall, comparison_id: UUID) -> Comparison:
    """Cancel a comparison without a decision. The response is 409 if it has ended."""
    before = await store.comparison(call.connection, comparison_id)
    after = await store.cancel_comparison(call.connection, comparison_id)
    call.audit("eval_comparison.cancel", comparison_id, organization_id=None, before=before, after=after)
    return after


async def _require_target(call: AdminCall, model: str, slices: list[str], **pools: str | None) -> None:
    """Raise InvalidField for a target that a worker could not ask, and Conflict like `newest_fleet`. pools: by the
    field that names each."""
    state = (await newest_fleet(call)).state
    if state.version:  # before the first state, nothing is known
        for field, pool in pools.items():
            target_of(state, model, pool, field)
        await call.slices.require_tier(slices, model_named(state, model))
