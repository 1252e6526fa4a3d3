"""Lists the audit log: who changed what and when, with the values before and after."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import func, select, true

from control.api.call import AdminCall
from control.api.pages import page_of
from control.api.schemas import Moment, Name, Page, PageQuery
from storage.actor_kind import ActorKind
from storage.rows import columns_of, equal
from storage.tables.audit import audit_log


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change. id: its position in the chain, without gaps across the whole deployment. before, after: the subject
    before and after the change; null if it did not exist. hash: over this entry and `previous_hash`."""

    id: int
    at: datetime
    actor_kind: ActorKind
    actor_id: UUID | None
    actor_name: str
    admin_key_id: UUID | None
    request_id: str | None
    organization_id: UUID | None
    action: str
    subject_kind: str
    subject_id: str
    before: Any
    after: Any
    previous_hash: str
    hash: str


COLUMNS = columns_of(
    AuditEntry,
    audit_log,
    previous_hash=func.encode(audit_log.c.previous_hash, "hex"),
    hash=func.encode(audit_log.c.hash, "hex"),
)


class AuditQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    organization_id: UUID | None = None
    action: Name | None = None
    subject_id: Name | None = None
    actor_id: UUID | None = None
    since: Moment | None = None
    until: Moment | None = None


async def list_audit(call: AdminCall, query: AuditQuery) -> Page[AuditEntry]:
    """List changes, newest first. `slipstream console audit verify` proves that none was altered or removed."""
    table = audit_log.c
    statement = select(*COLUMNS).where(
        call.sees(table.organization_id),
        equal(table.organization_id, query.organization_id),
        equal(table.action, query.action),
        equal(table.subject_id, query.subject_id),
        equal(table.actor_id, query.actor_id),
        true() if query.since is None else table.at >= query.since,
        true() if query.until is None else table.at < query.until,
    )
    return await page_of(call.connection, AuditEntry, statement, query, table.id)
