"""Stored prompts and completions at gaps, for the members of an organization with `store_prompts`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from sqlalchemy import select

from contracts.errors import PermissionDenied
from control.api.call import AdminCall
from control.api.pages import page_of
from control.api.schemas import Page, PageQuery
from control.completions.tables import completion_texts
from storage.rows import columns_of, equal


class CompletionText(msgspec.Struct, frozen=True, kw_only=True):
    """A filled gap. request_id: also in requests and in editors' reports. prefix: its last 2,000 characters. suffix,
    completion: their first 2,000 characters. completion: null if the response was forwarded without decoding."""

    request_id: str
    project_id: UUID
    prefix: str
    suffix: str
    completion: str | None
    recorded_at: datetime


class CompletionTextQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    project_id: UUID | None = None


async def list_completion_texts(
    call: AdminCall, organization_id: UUID, query: CompletionTextQuery
) -> Page[CompletionText]:
    """List the completion texts stored for the caller's own organization, newest first.

    The list is empty unless the organization's `store_prompts` is on. Members of the operating organization also see
    only their own organization's texts.
    """
    await call.require_organization(organization_id)
    if call.principal.organization_id != organization_id:
        raise PermissionDenied("Stored texts are shown to the organization's own members only.")
    table = completion_texts.c
    statement = select(*columns_of(CompletionText, completion_texts)).where(
        table.organization_id == organization_id, equal(table.project_id, query.project_id)
    )
    return await page_of(call.connection, CompletionText, statement, query, table.request_id)
