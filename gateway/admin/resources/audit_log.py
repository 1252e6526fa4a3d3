"""The audit log, to be read: who changed what, when, from what and to what."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from gateway.admin.bodies import Moment, Name, Page, PageQuery
from gateway.admin.call import AdminCall
from gateway.admin.endpoint import endpoint
from gateway.admin.pages import page_of
from gateway.admin.tables import ActorKind
from gateway.tenants.roles import Permission

SELECT = """
SELECT id, at, actor_kind, actor_id, actor_name, admin_key_id, request_id, organization_id, action, subject_kind,
       subject_id, before, after, encode(previous_hash, 'hex') AS previous_hash, encode(hash, 'hex') AS hash
  FROM gateway.audit_log
"""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change. id: its place in the chain, without gaps over the whole deployment. before, after: the subject as it
    was and as it became; null where there was or is nothing. hash: over this entry and `previous_hash`."""

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


class AuditQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    organization_id: UUID | None = None
    action: Name | None = None
    subject_id: Name | None = None
    actor_id: UUID | None = None
    since: Moment | None = None
    until: Moment | None = None


@endpoint("GET", "/audit", Permission.AUDIT_READ)
async def list_audit(call: AdminCall, query: AuditQuery) -> Page[AuditEntry]:
    """List changes, newest first. `slipstream audit verify` proves that none was altered or removed."""
    where = call.where()
    where.add_if("organization_id = {}", query.organization_id)
    where.add_if("action = {}", query.action)
    where.add_if("subject_id = {}", query.subject_id)
    where.add_if("actor_id = {}", query.actor_id)
    where.add_if("at >= {}", query.since)
    where.add_if("at < {}", query.until)
    return await page_of(call.connection, AuditEntry, SELECT, where, query, table="audit_log", order=("id",))


ENDPOINTS = (list_audit,)
