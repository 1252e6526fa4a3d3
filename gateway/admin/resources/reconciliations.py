"""Whether engines, ledger and totals agree: what the worker found. For those who run the deployment."""

from __future__ import annotations

from datetime import date, datetime

from msgspec import Struct

from gateway.admin.bodies import Name, Page, PageQuery
from gateway.admin.call import AdminCall
from gateway.admin.endpoint import endpoint
from gateway.admin.pages import Where, page_of
from gateway.tenants.roles import Permission

WINDOWS = """
SELECT replica_id, window_from, window_until, engine_prompt_tokens, engine_completion_tokens,
       ledger_prompt_tokens_min, ledger_prompt_tokens_max, ledger_completion_tokens_min, ledger_completion_tokens_max,
       uncertain_attempts, prompt_drift, completion_drift, checked_at
  FROM gateway.reconciliations
"""
VERIFICATIONS = """
SELECT checked_at, from_day, until_day, rows, wrong_hours, wrong_days, wrong_amounts FROM gateway.usage_verifications
"""


class ReconciledWindow(Struct, frozen=True, kw_only=True):
    """An engine's own count between two samples, and the bounds the ledger sets for it: attempts under way at an edge
    count for nothing in the least and whole in the most.

    drift: how far the engine's count lies outside; plus: the ledger lacks tokens. uncertain_attempts: of attempts whose
    length is not known exactly, which may explain a plus.
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
    """Totals held against their events, for days from `from_day` up to, not including, `until_day`."""

    checked_at: datetime
    from_day: date
    until_day: date
    rows: int
    wrong_hours: int
    wrong_days: int
    wrong_amounts: int


class WindowQuery(PageQuery, frozen=True, kw_only=True):
    """Filters. drift: only windows that agree, or only those that do not."""

    replica_id: Name | None = None
    drift: bool | None = None


@endpoint("GET", "/reconciliations", Permission.RECONCILIATION_READ, deployment=True)
async def list_reconciliations(call: AdminCall, query: WindowQuery) -> Page[ReconciledWindow]:
    """Engines' counters beside the ledger, newest window first."""
    where = Where()
    where.add_if("replica_id = {}", query.replica_id)
    where.add_if("(prompt_drift <> 0 OR completion_drift <> 0) = {}", query.drift)
    return await page_of(
        call.connection,
        ReconciledWindow,
        WINDOWS,
        where,
        query,
        table="reconciliations",
        order=("window_from", "replica_id"),
    )


@endpoint("GET", "/usage-verifications", Permission.RECONCILIATION_READ, deployment=True)
async def list_usage_verifications(call: AdminCall, query: PageQuery) -> Page[UsageVerification]:
    """Totals beside their events, newest check first."""
    return await page_of(
        call.connection,
        UsageVerification,
        VERIFICATIONS,
        Where(),
        query,
        table="usage_verifications",
        order=("checked_at",),
    )


ENDPOINTS = (list_reconciliations, list_usage_verifications)
