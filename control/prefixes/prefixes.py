"""Reusable share of an organization's prompts, by hour, template and cause, and its drops."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct, field
from sqlalchemy import BigInteger, ColumnElement, and_, func, null, select

from contracts.errors import PermissionDenied
from control.api.call import AdminCall
from control.api.moments import period
from control.api.pages import page_of, single_row_page
from control.api.schemas import LedgerMoment, ModelName, Name, Page, PageQuery
from control.prefixes.tables import prefix_drops, prefix_shares, prefix_texts
from gateway.prefixes.difference import Cause, Part
from storage.calendar import hour_of
from storage.rows import columns_of, equal, is_set

LAST = timedelta(days=7)
MAX_TOTALS = 5_000
"""The most rows of a page."""
SUMMED = ("requests", "prompt_tokens", "reusable_tokens", "cached_tokens")


class PrefixShare(Struct, frozen=True, kw_only=True):
    """Requests of one hour and one template whose prompt reuse ended for the same cause. template: a group of requests
    with the same project, endpoint, model, tool names and beginning of the system prompt; `others` for all but a
    tenant's first templates. part: where the prompts first differ; empty if the cause has none. differing_token: the
    earliest position of such a difference."""

    hour: datetime
    """The hour in which the requests arrived."""
    model: str
    endpoint: str
    template: str
    cause: Cause
    part: str
    requests: int
    prompt_tokens: int
    reusable_tokens: int
    """Tokens of the longest beginning that a prompt shares with an earlier prompt of the organization, as seen by the
    gateways."""
    cached_tokens: int
    """Reused tokens, as reported by engines."""
    differing_token: int | None


class PrefixBucket(StrEnum):
    """Division of time."""

    HOUR = "hour"
    ALL = "all"
    """Not divided."""


class PrefixGroup(StrEnum):
    """Columns that sums are grouped by."""

    MODEL = "model"
    ENDPOINT = "endpoint"
    TEMPLATE = "template"
    CAUSE = "cause"
    PART = "part"


class PrefixTotals(Struct, frozen=True, kw_only=True):
    """Sums of many shares. Fields that they are not grouped by are null."""

    hour: datetime | None
    model: str | None
    endpoint: str | None
    template: str | None
    cause: Cause | None
    part: str | None
    """Empty if the cause has none."""
    requests: int
    prompt_tokens: int
    reusable_tokens: int
    cached_tokens: int


class PrefixDrop(Struct, frozen=True, kw_only=True):
    """A drop of the reusable share of all the organization's prompts to half of the usual share or less.

    The other fields describe the largest loss. They are null if no template lost more than before. ended_at: when the
    share had almost recovered, or had become the usual one.
    """

    id: UUID
    began_at: datetime
    ended_at: datetime | None
    usual_share: float
    share: float
    template: str | None
    model: str | None
    cause: Cause | None
    part: Part | None
    part_number: int | None
    differing_token: int | None


class PrefixText(Struct, frozen=True, kw_only=True):
    """The texts at which two prompts first differ, up to 200 characters of each. earlier: null if only its digest was
    stored."""

    request_id: str
    project_id: UUID
    template: str
    cause: Cause
    part: Part | None
    part_number: int | None
    earlier: str | None
    later: str
    recorded_at: datetime


class PrefixQuery(PageQuery, frozen=True, kw_only=True):
    """Filter by hour. By default, `start` is seven days ago."""

    start: LedgerMoment | None = None
    end: LedgerMoment | None = None
    model: ModelName | None = None
    template: Name | None = None

    def period(self) -> tuple[datetime, datetime]:
        """The period in UTC. Raises InvalidField."""
        return period(self.start, self.end, LAST)


class PrefixTotalsQuery(PrefixQuery, frozen=True, kw_only=True):
    """Filter by hour. By default, `start` is seven days ago. group_by may be repeated."""

    limit: Annotated[int, Meta(ge=1, le=MAX_TOTALS)] = 20
    """The maximum number of items."""
    bucket: PrefixBucket = PrefixBucket.HOUR
    group_by: list[PrefixGroup] = field(default_factory=list)


class PrefixTextQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    template: Name | None = None


class DropQuery(PageQuery, frozen=True, kw_only=True):
    """ended: true for drops that have ended, false for open ones."""

    ended: bool | None = None


async def list_prefix_shares(call: AdminCall, organization_id: UUID, query: PrefixQuery) -> Page[PrefixShare]:
    """List the reusable shares of an organization's prompts, newest hour first."""
    await call.require_organization(organization_id)
    table = prefix_shares.c
    statement = select(*columns_of(PrefixShare, prefix_shares)).where(_asked(organization_id, query))
    order = (table.hour, table.model, table.endpoint, table.template, table.cause, table.part)
    return await page_of(call.connection, PrefixShare, statement, query, *order)


async def get_prefix_totals(call: AdminCall, organization_id: UUID, query: PrefixTotalsQuery) -> Page[PrefixTotals]:
    """Get the reusable shares of an organization's prompts, summed by group, newest hour first."""
    await call.require_organization(organization_id)
    table = prefix_shares.c
    chosen = [table.hour] if query.bucket is PrefixBucket.HOUR else []
    chosen += [table[group.value] for group in PrefixGroup if group in query.group_by]
    names = {column.key for column in chosen}
    computed: dict[str, ColumnElement[Any]] = {
        name: func.sum(table[name]).cast(BigInteger) if name in SUMMED else null()
        for name in PrefixTotals.__struct_fields__
        if name not in names
    }
    statement = select(*columns_of(PrefixTotals, prefix_shares, **computed)).where(_asked(organization_id, query))
    if not chosen:
        return await single_row_page(call.connection, PrefixTotals, statement)
    return await page_of(call.connection, PrefixTotals, statement.group_by(*chosen), query, *chosen)


def _asked(organization_id: UUID, query: PrefixQuery) -> ColumnElement[bool]:
    begin, end = query.period()
    table = prefix_shares.c
    return and_(
        table.organization_id == organization_id,
        table.hour >= hour_of(begin),
        table.hour < end,
        equal(table.model, query.model),
        equal(table.template, query.template),
    )


async def list_prefix_drops(call: AdminCall, organization_id: UUID, query: DropQuery) -> Page[PrefixDrop]:
    """List the drops of the reusable share of an organization's prompts, newest first."""
    await call.require_organization(organization_id)
    table = prefix_drops.c
    statement = (
        prefix_drops.select()
        .with_only_columns(*columns_of(PrefixDrop, prefix_drops))
        .where(table.organization_id == organization_id, is_set(table.ended_at, query.ended))
    )
    return await page_of(call.connection, PrefixDrop, statement, query, table.began_at, table.id)


async def list_prefix_texts(call: AdminCall, organization_id: UUID, query: PrefixTextQuery) -> Page[PrefixText]:
    """List the texts at which prompts of the caller's own organization differed, newest first.

    The list is empty unless the organization's `store_prompts` is on. Members of the operating organization also see
    only their own organization's texts.
    """
    await call.require_organization(organization_id)
    if call.principal.organization_id != organization_id:
        raise PermissionDenied("Stored texts are shown to the organization's own members only.")
    table = prefix_texts.c
    statement = (
        prefix_texts.select()
        .with_only_columns(*columns_of(PrefixText, prefix_texts))
        .where(table.organization_id == organization_id, equal(table.template, query.template))
    )
    return await page_of(call.connection, PrefixText, statement, query, table.request_id)
