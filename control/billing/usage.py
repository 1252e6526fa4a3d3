"""Usage and its cost: totals from the roll-ups, single attempts from the ledger, and invoices.

Totals are a few seconds old (`worker.roll_up_every_s`). For the current hour, an invoice adds up events.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct, field, structs
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ColumnElement,
    FromClause,
    Select,
    Uuid,
    any_,
    func,
    literal,
    null,
    select,
    union_all,
)

from contracts.dated_request_id import first_at
from contracts.errors import InvalidField, NotFound
from contracts.generation import Tier
from control.api.call import AdminCall
from control.api.moments import moment, month
from control.api.pages import page_of, single_row_page
from control.api.schemas import LedgerMoment, ModelName, Page, PageQuery
from control.billing.invoice import Invoice, quick_invoice_of
from control.tenants.adapters import AdapterName
from storage.calendar import midnight, week_of
from storage.rows import columns_of, equal, fetch, fetchval
from storage.tables.core import api_keys, projects
from storage.tables.metering import (
    ROLLED_UP,
    organization_usage_daily,
    organization_usage_hourly,
    project_usage_daily,
    usage_daily,
    usage_events,
    usage_hourly,
    usage_week_closings,
    usage_weekly,
)

DAY, WEEK = timedelta(days=1), timedelta(days=7)
MAX_HOURS = timedelta(days=32)
MAX_TOTALS = 5_000
"""Limit of a page's rows."""
MAX_OWNERS = 20
"""Limit of the ids in one filter."""
_IDS: ARRAY[UUID] = ARRAY(Uuid())
HOURLY, DAILY = (
    (organization_usage_hourly, usage_hourly),
    (organization_usage_daily, project_usage_daily, usage_daily),
)
"""Roll-ups, the smallest first."""
SUMMED = ("requests", *ROLLED_UP)


class Bucket(StrEnum):
    """Division of time."""

    HOUR = "hour"
    DAY = "day"
    ALL = "all"
    """One total for all hours that begin in the period."""


class Group(StrEnum):
    """Columns that totals are grouped by."""

    ORGANIZATION = "organization"
    PROJECT = "project"
    KEY = "key"
    MODEL = "model"
    TIER = "tier"
    ADAPTER = "adapter"


OWNERS = (Group.ORGANIZATION, Group.PROJECT, Group.KEY)
"""Groups whose column is an id."""


class UsageTotals(Struct, frozen=True, kw_only=True):
    """Billed usage of requests that arrived in one hour or on one day (UTC). Fields that the totals are not grouped by
    are null. prompt_tokens include cached and cache-written tokens, completion_tokens include reasoning tokens.
    draft_tokens: tokens drafted by engines that report drafts. accepted_draft_tokens: those of them that were accepted.
    No other count includes drafts. amount_micro: in millionths of the deployment's currency."""

    hour: datetime | None
    """The start of the hour; null unless `bucket` is `hour`."""
    day: date | None
    """Null unless `bucket` is `day`."""
    organization_id: UUID | None
    project_id: UUID | None
    key_id: UUID | None
    model: str | None
    tier: str | None
    adapter: str | None
    """The owner's name for the adapter; empty without one."""
    requests: int
    prompt_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    draft_tokens: int
    accepted_draft_tokens: int
    amount_micro: int
    project_name: str | None = None
    """The current name; null unless totals are grouped by project, or by key, which belongs to one project."""
    key_name: str | None = None


class UsageEvent(Struct, frozen=True, kw_only=True):
    """One attempt, as recorded in the ledger. pool, engine, driver: null for tenants."""

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
    price_percent: int
    """The percentage of the price that the attempt cost: less than 100 in the class `offline`."""
    amount_micro: int
    status: int | None
    error_code: str | None
    purpose: str | None
    """The deployment's own purpose, such as `evals`, which is not billed; null for a customer's attempt."""
    adapter: str | None
    """The LoRA adapter; null without one. It costs what its model costs."""
    requested_at: datetime
    closed_at: datetime


class Filters(PageQuery, frozen=True, kw_only=True):
    """Filters of usage. start, end: when requests arrived. By default, the period is this month so far."""

    start: LedgerMoment | None = None
    end: LedgerMoment | None = None
    model: ModelName | None = None
    tier: Tier | None = None
    adapter: AdapterName | None = None

    def period(self) -> tuple[datetime, datetime]:
        """The period in UTC. Raises InvalidField."""
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

    def named(self) -> dict[str, str | None]:
        """Values by the column that they filter."""
        return {"model": self.model, "tier": self.tier, "adapter": self.adapter}


class TotalsQuery(Filters, frozen=True, kw_only=True):
    """Totals by hour (at most 32 days), by whole day (UTC), or over the whole period. group_by, project_id and key_id
    may be repeated."""

    limit: Annotated[int, Meta(ge=1, le=MAX_TOTALS)] = 20
    """The maximum number of items."""
    bucket: Bucket = Bucket.DAY
    group_by: list[Group] = field(default_factory=list)
    project_id: Annotated[list[UUID], Meta(max_length=MAX_OWNERS)] = field(default_factory=list)
    """One or more projects."""
    key_id: Annotated[list[UUID], Meta(max_length=MAX_OWNERS)] = field(default_factory=list)

    def require_utc_days(self) -> None:
        """Raise InvalidField for a time of another zone within a UTC day, which has hours outside the period."""
        for name, value in (("start", self.start), ("end", self.end)):
            if value is not None and value.utcoffset() and value.astimezone(UTC) != midnight(value.astimezone(UTC)):
                raise InvalidField(
                    f"Invalid value for '{name}': days are counted in UTC, and this moment of another zone lies within "
                    "one. Give it in UTC, or send 'bucket=hour' and add up the hours of your days.",
                    param=name,
                )


class EventsQuery(Filters, frozen=True, kw_only=True):
    """Filters of single attempts."""

    project_id: UUID | None = None
    key_id: UUID | None = None
    billed: bool | None = None


async def get_usage(call: AdminCall, organization_id: UUID, query: TotalsQuery) -> Page[UsageTotals]:
    """Get an organization's usage by hour or day, newest first, in the requested groups."""
    await call.require_organization(organization_id)
    return await _totals(call, query, organization_id)


async def get_usage_of_all(call: AdminCall, query: TotalsQuery) -> Page[UsageTotals]:
    """Get the usage of all organizations together, newest first, in the requested groups."""
    return await _totals(call, query, None)


async def list_usage_events(call: AdminCall, organization_id: UUID, query: EventsQuery) -> Page[UsageEvent]:
    """List an organization's attempts, billed or not, newest request first."""
    await call.require_organization(organization_id)
    begin, end = query.period()
    table = usage_events.c
    # Literals, because PostgreSQL's plan for parameters does not know which partitions it can skip.
    first, past = (literal(first_at(moment.timestamp()), literal_execute=True) for moment in (begin, end))
    where = {"engine": table.replica_id, "pool": table.pool, "driver": table.driver}
    placement = {name: call.placed(column) for name, column in where.items()}
    statement = select(*columns_of(UsageEvent, usage_events, **placement)).where(
        # the index of the narrowest filter leads to the page without reading other rows
        table.organization_id == organization_id,
        equal(table.project_id, query.project_id),
        equal(table.key_id, query.key_id),
        *(equal(table[name], value) for name, value in query.named().items()),
        equal(table.billed, query.billed),
        table.request_id >= first,
        table.request_id < past,
    )
    return await page_of(call.connection, UsageEvent, statement, query, table.request_id, table.attempt)


async def get_invoice(call: AdminCall, organization_id: UUID, month_name: str) -> Invoice:
    """Get a month's invoice (`2026-11`, UTC) by project, key, model, tier and price.

    Past hours come from totals, which `slipstream usage verify` compares with their events. The current hour comes from
    the events. `slipstream usage invoice` adds up the events, except on days past their retention, and can write the
    same invoice as CSV.
    """
    await call.require_organization(organization_id)
    period = month(month_name)
    if period is None:
        raise NotFound(f"There is no month {month_name[:20]!r}; write it as 2026-11, of the years 2020 to 2099.")
    return await quick_invoice_of(call.connection, organization_id, *period, call.currency)


async def _totals(call: AdminCall, query: TotalsQuery, organization_id: UUID | None) -> Page[UsageTotals]:
    begin, end = query.period()
    if query.bucket is Bucket.HOUR and end - begin > MAX_HOURS:
        raise InvalidField("Invalid value for 'bucket': hours are available for 32 days at most.", param="bucket")
    if query.bucket is Bucket.DAY:
        query.require_utc_days()
    wanted = [f"{group.value}_id" if group in OWNERS else group.value for group in query.group_by]
    owners = {"organization_id": organization_id, **query.named()}
    several = {"project_id": query.project_id, "key_id": query.key_id}
    narrowed = [name for name, value in {**owners, **several}.items() if value not in (None, [])]
    rows = totals_of_period(query.bucket, begin, end, frozenset([*wanted, *narrowed]), await _closed_weeks(call, query))
    chosen = [] if query.bucket is Bucket.ALL else [rows.c[query.bucket.value]]
    chosen += [rows.c[name] for name in dict.fromkeys(wanted)]
    keys = {column.key for column in chosen}
    computed: dict[str, ColumnElement[Any]] = {
        name: func.sum(rows.c[name]).cast(BigInteger) if name in SUMMED else null()
        for name in UsageTotals.__struct_fields__
        if name not in keys
    }
    statement = select(*columns_of(UsageTotals, rows, **computed)).where(
        *(rows.c[name] == value for name, value in owners.items() if value is not None),
        *(rows.c[name].in_(values) for name, values in several.items() if values),
    )
    if not chosen:
        return await single_row_page(call.connection, UsageTotals, statement)
    # Groups and order match an index, newest first, so that a page ends before the rest is added up.
    page = await page_of(call.connection, UsageTotals, statement.group_by(*chosen), query, *chosen)
    return structs.replace(page, data=await _named(call, page.data))


async def _named(call: AdminCall, totals: list[UsageTotals]) -> list[UsageTotals]:
    """The totals with the names of their projects and keys."""
    project_ids = [each.project_id for each in totals if each.project_id is not None]
    key_ids = [each.key_id for each in totals if each.key_id is not None]
    names: dict[UUID | None, str] = {}
    projects_of: dict[UUID | None, str] = {}
    if project_ids:
        found = select(projects.c.id, projects.c.name).where(projects.c.id == any_(literal(project_ids, _IDS)))
        names = {row["id"]: row["name"] for row in await fetch(call.connection, found)}
    if key_ids:
        of_keys = select(api_keys.c.id, api_keys.c.name, projects.c.name.label("project_name"))
        of_keys = of_keys.select_from(api_keys.join(projects, projects.c.id == api_keys.c.project_id))
        for row in await fetch(call.connection, of_keys.where(api_keys.c.id == any_(literal(key_ids, _IDS)))):
            names[row["id"]] = row["name"]
            projects_of[row["id"]] = row["project_name"]
    if not names:
        return totals
    return [
        structs.replace(
            each,
            project_name=names.get(each.project_id) or projects_of.get(each.key_id),
            key_name=names.get(each.key_id),
        )
        for each in totals
    ]


async def _closed_weeks(call: AdminCall, query: TotalsQuery) -> date:
    """The Monday before which all weeks have their own totals."""
    if query.bucket is not Bucket.ALL:
        return date.min
    until: date | None = await fetchval(call.connection, select(func.max(usage_week_closings.c.until)))
    return until or date.min


def totals_of_period(
    bucket: Bucket, begin: datetime, end: datetime, told_apart: frozenset[str], closed_weeks: date = date.min
) -> FromClause:
    """The totals of a period, from the smallest roll-ups that have the columns `told_apart`. With `Bucket.ALL`, they
    come from the longest spans within the period."""
    hourly, daily = (next(table for table in tables if told_apart <= set(table.c.keys())) for tables in (HOURLY, DAILY))
    columns = [*sorted(told_apart), *SUMMED]

    def between(time: Column[Any], since: date, until: date, *leading: Column[Any]) -> Select[Any]:
        return select(*leading, *(time.table.c[name] for name in columns)).where(time >= since, time < until)

    if bucket is Bucket.HOUR:
        return between(hourly.c.hour, begin, end, hourly.c.hour).subquery()
    if bucket is Bucket.DAY:
        last = end - timedelta(microseconds=1)
        return between(daily.c.day, begin.date(), last.date() + DAY, daily.c.day).subquery()
    hours, days, weeks = whole_spans(begin, end, closed_weeks if daily is usage_daily else date.min)
    of_each = ((hourly.c.hour, hours), (daily.c.day, days), (usage_weekly.c.week, weeks))
    return union_all(*(between(time, *span) for time, spans in of_each for span in spans)).subquery()


def whole_spans(
    begin: datetime, end: datetime, closed_weeks: date
) -> tuple[list[tuple[datetime, datetime]], list[tuple[date, date]], list[tuple[date, date]]]:
    """Split a period into hours, whole days between them, and whole weeks between those. Each span goes up to, not
    including, its second time. closed_weeks: the Monday from which on days replace weeks."""
    first, past = midnight(begin + DAY - timedelta(microseconds=1)), midnight(end)
    if first >= past:
        return [(begin, end)], [], []
    monday, past_week = week_of(first.date() + WEEK - DAY), min(week_of(past.date()), closed_weeks)
    hours = [(since, until) for since, until in ((begin, first), (past, end)) if since < until]
    if monday >= past_week:
        return hours, [(first.date(), past.date())], []
    days = [(since, until) for since, until in ((first.date(), monday), (past_week, past.date())) if since < until]
    return hours, days, [(monday, past_week)]
