"""What was used and what it costs: totals from the roll-ups, single attempts from the ledger, and invoices.

Totals are a few seconds old (`worker.rollup_every_s`). An invoice is added up from the events themselves.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct, field
from sqlalchemy import BigInteger, ColumnElement, Table, func, literal, null, select

from contracts.errors import InvalidField, NotFound
from contracts.generation import Tier
from gateway.admin.call import AdminCall
from gateway.admin.moments import moment, month
from gateway.admin.pages import page_of
from gateway.admin.resources.adapters import AdapterName
from gateway.admin.schemas import ModelName, Moment, Page, PageQuery
from gateway.db.rows import columns_of, equal, fetchrow, record_of
from gateway.metering.journal.request_id import first_at
from gateway.metering.pricing.invoice import Invoice, invoice_of
from gateway.metering.tables import ROLLED_UP, usage_daily, usage_events, usage_hourly

MOST_HOURS = timedelta(days=32)
SUMMED = ("requests", *ROLLED_UP)


class Bucket(StrEnum):
    """How time is cut."""

    HOUR = "hour"
    DAY = "day"
    ALL = "all"
    """Not at all: one total for the whole period, from whole days."""


class Group(StrEnum):
    """By what totals are told apart."""

    ORGANIZATION = "organization"
    PROJECT = "project"
    KEY = "key"
    MODEL = "model"
    TIER = "tier"
    ADAPTER = "adapter"


OWNERS = (Group.ORGANIZATION, Group.PROJECT, Group.KEY)
"""Grouped by the id."""


class UsageTotals(Struct, frozen=True, kw_only=True):
    """What was billed of requests that arrived in one hour or on one day (UTC). What it is not grouped by is null.

    prompt_tokens include the cached and the written ones, completion_tokens the reasoning ones. draft_tokens: guessed
    ahead by engines that tell of it, and accepted_draft_tokens those of them that were right; they are part of no other
    count. amount_micro: millionths of the deployment's currency.
    """

    hour: datetime | None
    """Its beginning; null unless `bucket` is `hour`."""
    day: date | None
    """Null unless `bucket` is `day`."""
    organization_id: UUID | None
    project_id: UUID | None
    key_id: UUID | None
    model: str | None
    tier: str | None
    adapter: str | None
    """By the name that its owner gave it; empty: none."""
    requests: int
    prompt_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    draft_tokens: int
    accepted_draft_tokens: int
    amount_micro: int


class UsageEvent(Struct, frozen=True, kw_only=True):
    """One attempt, as the ledger has it for ever. pool, engine, driver: null for tenants."""

    request_id: str
    attempt: int
    organization_id: UUID
    project_id: UUID
    key_id: UUID
    model: str
    tier: str
    endpoint: str
    pool: str | None
    engine: str | None
    driver: str | None
    stream: bool
    prompt_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    draft_tokens: int
    accepted_draft_tokens: int
    outcome: str
    finish: str
    billed: bool
    price_version: int | None
    amount_micro: int
    status: int | None
    error_code: str | None
    purpose: str | None
    """What the deployment itself asked it for, such as `evals`: it costs nothing. Null: a customer's."""
    adapter: str | None
    """The LoRA adapter that changed the model; null: none. It costs what the model costs."""
    requested_at: datetime
    closed_at: datetime


class Filters(PageQuery, frozen=True, kw_only=True):
    """Which usage. start, end: of the requests' arrival; from the beginning of this month until now, unless given."""

    start: Moment | None = None
    end: Moment | None = None
    project_id: UUID | None = None
    key_id: UUID | None = None
    model: ModelName | None = None
    tier: Tier | None = None
    adapter: AdapterName | None = None

    def period(self) -> tuple[datetime, datetime]:
        """In UTC. Raises InvalidField."""
        now = datetime.now(UTC)
        end = now if self.end is None else moment(self.end, "end")
        begin = (
            min(now, end).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            if self.start is None
            else moment(self.start, "start")
        )
        if begin >= end:
            raise InvalidField("Invalid value for 'end': it is not after 'start'.", param="end")
        return begin, end

    def of(self, table: Table) -> tuple[ColumnElement[bool], ...]:
        """The conditions but for time and organization."""
        columns = table.c
        return (
            equal(columns.project_id, self.project_id),
            equal(columns.key_id, self.key_id),
            equal(columns.model, self.model),
            equal(columns.tier, self.tier),
            equal(columns.adapter, self.adapter),
        )


class TotalsQuery(Filters, frozen=True, kw_only=True):
    """Totals of hours (for 32 days at most), of whole days (UTC), or of everything. group_by may be given several
    times."""

    bucket: Bucket = Bucket.DAY
    group_by: list[Group] = field(default_factory=list)


class EventsQuery(Filters, frozen=True, kw_only=True):
    """Single attempts."""

    billed: bool | None = None


async def get_usage(call: AdminCall, organization_id: UUID, query: TotalsQuery) -> Page[UsageTotals]:
    """An organization's usage by hour or day, newest first, grouped as asked."""
    await call.require_organization(organization_id)
    return await _totals(call, query, organization_id)


async def get_usage_of_all(call: AdminCall, query: TotalsQuery) -> Page[UsageTotals]:
    """The usage of all organizations together, newest first, grouped as asked."""
    return await _totals(call, query, None)


async def list_usage_events(call: AdminCall, organization_id: UUID, query: EventsQuery) -> Page[UsageEvent]:
    """An organization's attempts, billed or not, newest request first."""
    await call.require_organization(organization_id)
    begin, end = query.period()
    table = usage_events.c
    # Written out: PostgreSQL's plan for any period does not know which partitions it can leave out.
    first, past = (literal(first_at(moment.timestamp()), literal_execute=True) for moment in (begin, end))
    where = {"engine": table.replica_id, "pool": table.pool, "driver": table.driver}
    told = {name: call.placed(column) for name, column in where.items()}
    statement = select(*columns_of(UsageEvent, usage_events, **told)).where(
        # of several indexes the one over the narrowest filter leads to a page without a row too many
        table.organization_id == organization_id,
        *query.of(usage_events),
        equal(table.billed, query.billed),
        table.request_id >= first,
        table.request_id < past,
    )
    return await page_of(call.connection, UsageEvent, statement, query, table.request_id, table.attempt)


async def get_invoice(call: AdminCall, organization_id: UUID, month_name: str) -> Invoice:
    """What a month (`2026-11`, UTC) costs, added up from its events by project, key, model, tier and price.

    `slipstream usage invoice` writes the same as CSV.
    """
    await call.require_organization(organization_id)
    period = month(month_name)
    if period is None:
        raise NotFound(f"There is no month {month_name[:20]!r}; write it as 2026-11, of the years 2020 to 2099.")
    return await invoice_of(call.connection, organization_id, *period, call.currency)


async def _totals(call: AdminCall, query: TotalsQuery, organization_id: UUID | None) -> Page[UsageTotals]:
    begin, end = query.period()
    hourly = query.bucket is Bucket.HOUR
    if hourly and end - begin > MOST_HOURS:
        raise InvalidField("Invalid value for 'bucket': hours are told for 32 days at most.", param="bucket")
    table = usage_hourly if hourly else usage_daily
    time = table.c.hour if hourly else table.c.day
    last = end - timedelta(microseconds=1)
    period = time.between(begin, last) if hourly else time.between(begin.date(), last.date())
    wanted = {f"{group.value}_id" if group in OWNERS else group.value for group in query.group_by}
    chosen = [] if query.bucket is Bucket.ALL else [time]
    chosen += [column for column in table.c if column.key in wanted]
    keys = {column.key for column in chosen}
    computed: dict[str, ColumnElement[Any]] = {
        name: func.sum(table.c[name]).cast(BigInteger) if name in SUMMED else null()
        for name in UsageTotals.__struct_fields__
        if name not in keys
    }
    statement = select(*columns_of(UsageTotals, table, **computed)).where(
        equal(table.c.organization_id, organization_id), *query.of(table), period
    )
    if not chosen:
        row = await fetchrow(call.connection, statement)
        some = [] if row is None or row["requests"] is None else [record_of(UsageTotals, row)]
        return Page(data=some, has_more=False, next_cursor=None)
    # Grouped and ordered as an index is: newest first, a page ends before the rest is added up.
    return await page_of(call.connection, UsageTotals, statement.group_by(*chosen), query, *chosen)
