"""Nights of evals: their verdicts, the next one, and obstacles."""

from __future__ import annotations

from control.api.call import AdminCall
from control.api.pages import page_of
from control.api.schemas import ModelName, Page, PageQuery
from control.eval_runs import nights
from control.eval_runs.nights import EvalNight, NightStatus
from storage.rows import equal
from storage.tables import evals as tables
from storage.tables.evals import Decision


class NightQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    model: ModelName | None = None
    decision: Decision | None = None


async def list_eval_nights(call: AdminCall, query: NightQuery) -> Page[EvalNight]:
    """List the verdicts on nights, newest first. Each compares a model's slices with its own history and its previous
    version."""
    table = tables.nights.c
    statement = nights.NIGHTS.where(equal(table.model, query.model), equal(table.decision, query.decision))
    return await page_of(call.connection, EvalNight, statement, query, table.judged_at, table.run_id)


async def get_night_status(call: AdminCall) -> NightStatus:
    """Get the previous and next nights and any obstacles."""
    return await nights.status(call.connection)
