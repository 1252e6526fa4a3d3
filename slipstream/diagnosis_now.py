"""A diagnosis with the current figures, for every command that judges, so that all commands name the same alerts."""

from __future__ import annotations

import asyncio
from uuid import UUID

from control.api.call import AdminCall
from control.diagnosis.diagnosis import DiagnosisOf, DiagnosisQuery, diagnosed
from control.diagnosis.findings.evidence import Audit
from control.slo.rollup import roll_up
from slipstream.database import adding_up
from slipstream.settings import Settings


async def diagnosis_now(
    call: AdminCall, settings: Settings, query: DiagnosisQuery, organization_id: UUID | None, audit: Audit | None = None
) -> DiagnosisOf:
    """Roll up the requests that the worker has not rolled up yet, then diagnose. Parameters: see `diagnosed`."""
    retention_days = settings.worker.ledger.trace_retention_days
    with adding_up(settings):
        await asyncio.to_thread(roll_up, settings.database_url, trace_retention_days=retention_days)
    return await diagnosed(call, query, organization_id, audit)
