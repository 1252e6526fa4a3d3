"""Lists the worker's comparisons of engines, ledger and totals for the deployment's operators."""

from __future__ import annotations

from datetime import date, datetime

from msgspec import Struct
from sqlalchemy import or_, select, true

from control.api.call import AdminCall
from control.api.pages import page_of
from control.api.schemas import Name, Page, PageQuery
from storage.rows import columns_of, equal
from storage.tables.metering import reconciliations, usage_verifications


class ReconciledWindow(Struct, frozen=True, kw_only=True):
    """An engine's own count between two samples, and the ledger's bounds for it. The lower bound excludes attempts that
    were running at either sample; the upper bound includes them.

    drift: how far the engine's count is outside the bounds. It is positive if the ledger lacks tokens.
    uncertain_attempts: attempts whose length is not exactly known, which may explain a positive drift.
    """

    replica_id: str
    window_from: datetime
    window_until: datetime
    engine_prompt_tokens: int
    engine_completion_tokens: int
    ledger_prompt_tokens_min: int
    ledger_prompt_tokens_max: int
    ledger_completion_tokens_min: int
    ledger_completion_tokens_max: int
    uncertain_attempts: int
    prompt_drift: int
    completion_drift: int
    checked_at: datetime


class UsageVerification(Struct, frozen=True, kw_only=True):
    """Comparison of totals with their events, for the days from `from_day` up to but excluding `until_day`."""

    checked_at: datetime
    from_day: date
    until_day: date
    rows: int
    wrong_hours: int
    wrong_days: int
    wrong_amounts: int


class WindowQuery(PageQuery, frozen=True, kw_only=True):
    """Filters. drift: true for windows that differ, false for windows that agree."""

    replica_id: Name | None = None
    drift: bool | None = None


async def list_reconciliations(call: AdminCall, query: WindowQuery) -> Page[ReconciledWindow]:
    """List engines' token counts next to the ledger's, newest window first."""
    table = reconciliations.c
    drifted = or_(table.prompt_drift != 0, table.completion_drift != 0)
    statement = select(*columns_of(ReconciledWindow, reconciliations)).where(
        equal(table.replica_id, query.replica_id),
        true() if query.drift is None else drifted if query.drift else ~drifted,
    )
    return await page_of(call.connection, ReconciledWindow, statement, query, table.window_from, table.replica_id)


async def list_usage_verifications(call: AdminCall, query: PageQuery) -> Page[UsageVerification]:
    """List comparisons of totals with their events, the newest first."""
    statement = select(*columns_of(UsageVerification, usage_verifications))
    return await page_of(call.connection, UsageVerification, statement, query, usage_verifications.c.checked_at)
