"""Requests within their objectives: error budgets, series of goodput, and the cost of good tokens.

They are sums of the roll-ups by minute and hour (`control.slo.totals`), which the worker keeps up to date
(`slo.roll_up_every_s`). Only operators see pools and their cost.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct, field
from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    DateTime,
    Double,
    Label,
    Text,
    exists,
    func,
    literal,
    null,
    select,
)
from sqlalchemy.sql.expression import literal_column

from contracts.desired_state import Pool
from contracts.errors import ConfigError, InvalidField
from contracts.generation import Tier
from contracts.length_class import LengthClass
from control.api.call import AdminCall
from control.api.moments import period
from control.api.pages import page_of, single_row_page
from control.api.schemas import LedgerMoment, ModelName, Page, PageQuery, Query
from control.slo.budget import MIN_BAD, BurnPair
from control.slo.cost import MICROSECOND, MINUTE, GoodTokens, PoolCost, Rented, pool_costs, rented
from control.slo.present import present
from control.slo.standing import Standing
from control.slo.tables import COUNTS
from control.slo.totals import totals
from gateway.desired import document
from storage.rows import columns_of, fetch

LAST_DAY = timedelta(days=1)
_MOMENTS = ARRAY(DateTime(timezone=True))
MAX = {"minute": timedelta(days=2), "hour": timedelta(days=32)}
VERSIONS = """
SELECT version, created_at, document::text AS document FROM gateway.desired_states
 WHERE created_at < $2
   AND version >= (SELECT coalesce(max(version), 0) FROM gateway.desired_states WHERE created_at <= $1)
 ORDER BY version
"""


class Bucket(StrEnum):
    """Length of a period (UTC)."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    ALL = "all"
    """Not at all: one total for the whole period."""


class GoodputGroup(StrEnum):
    """Columns that totals are grouped by."""

    PROJECT = "project"
    MODEL = "model"
    TIER = "tier"
    LENGTH = "length"


class DeploymentGroup(StrEnum):
    """Columns that the deployment's totals are grouped by."""

    ORGANIZATION = "organization"
    PROJECT = "project"
    MODEL = "model"
    TIER = "tier"
    LENGTH = "length"
    POOL = "pool"
    SIDE = "side"


FIELDS = {
    "organization": "organization_id",
    "project": "project_id",
    "model": "model",
    "tier": "tier",
    "length": "length",
    "pool": "pool",
    "side": "side",
}
"""The field of each group."""


class SloWindow(Struct, frozen=True, kw_only=True):
    """One objective in one window, which ends with the last aggregated minute."""

    window: str
    """`5m`, `30m`, `1h`, `2h`, `6h`, `1d`, `3d` or `28d`."""
    counted: int
    """Requests that were answered, or failed through the platform's fault."""
    good: int
    """The counted requests that met every figure of the objective."""
    over_share: int
    """Requests refused because the pool was full and their organization exceeded its share. They count for their
    organization, but not for the deployment, which had room for all others."""
    attainment: float | None
    """good / counted; null without counted requests."""
    burn_rate: float | None
    """How fast the error budget burns. At 1, it lasts exactly 28 days. Null without counted requests."""


class BurnAlert(Struct, frozen=True, kw_only=True):
    """Two windows that both burn the budget faster than the threshold."""

    long: str
    short: str
    threshold: float


class ObjectiveStanding(Struct, frozen=True, kw_only=True):
    """One objective, its attainment, and the rest of its error budget."""

    tier: Tier
    length: LengthClass
    """The prompt's length: `short` (fewer than 4,096 tokens), `medium` (fewer than 16,384) or `long`."""
    ttft_ms: float
    """The promised time to first token."""
    tpot_ms: float | None
    """The promised mean time per token after the first; null without a promise."""
    itl_max_ms: float | None
    """The promised longest gap between two tokens; null without a promise."""
    target: float
    """The share of requests that should be good."""
    promised_since: datetime | None
    """The time since which these figures apply. Earlier requests were judged by others, and no window contains them.
    Null if the figures never changed."""
    windows: list[SloWindow]
    """The shortest window first."""
    budget_left: float | None
    """The remaining share of the error budget of 28 days: 1 if untouched, 0 if spent, negative if overspent."""
    burning: list[BurnAlert]
    """The alerts that are firing."""
    too_few: list[BurnAlert]
    """Windows that also burn too fast, but whose long window has fewer bad requests than `least_bad`. They fire no
    alert."""


class SloReport(Struct, frozen=True, kw_only=True):
    """All objectives in force."""

    version: int
    """The version of the objectives; 0 until a worker has stored any."""
    added_up_until: datetime | None
    """The end of the last aggregated minute; null before the first roll-up."""
    least_bad: int
    """The number of bad requests in its long window that an alert requires."""
    objectives: list[ObjectiveStanding]


class GoodputTotals(Struct, frozen=True, kw_only=True):
    """Requests that arrived in one period, by outcome. Fields that they are not grouped by are null."""

    at: datetime | None
    """The start of the period; null if `bucket` is `all`."""
    organization_id: UUID | None
    project_id: UUID | None
    model: str | None
    """Empty if the request was refused before the model was known."""
    tier: str | None
    length: str | None
    pool: str | None
    """Empty if no engine was assigned."""
    side: str | None
    """The side of a rollout: `baseline`, `control` or `candidate`; `baseline` without one."""
    requests: int
    """Requests of a known tier, including refused ones."""
    counted: int
    """Requests that were answered, or failed through the platform's fault."""
    failed: int
    """Requests that failed through the platform's fault, including shed ones."""
    shed: int
    """Requests refused because the pool was full."""
    over_share: int
    """The shed requests whose organization exceeded its share. They count for an organization, but not for the
    deployment."""
    limited: int
    """Requests refused by the tenant's own limits; not counted."""
    abandoned: int
    """Requests whose client left before the first text; not counted."""
    superseded: int
    """Requests that were superseded because the user typed on; not counted."""
    good: int
    """Counted requests that met every figure of the objective."""
    ttft_kept: int
    tpot_kept: int
    gap_kept: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    good_tokens: int
    """Output tokens of good requests."""
    goodput: float | None
    """good / counted; null without counted requests."""


class SloQuery(Query, frozen=True, kw_only=True):
    """Filter of requests."""

    project_id: UUID | None = None
    model: ModelName | None = None
    tier: Tier | None = None


class PeriodQuery(PageQuery, frozen=True, kw_only=True):
    """Filter by request and period. start, end: when requests arrived; by default, the last 24 hours. Minutes are
    available for at most 2 days, hours for at most 32 days. group_by may be repeated."""

    start: LedgerMoment | None = None
    end: LedgerMoment | None = None
    project_id: UUID | None = None
    model: ModelName | None = None
    tier: Tier | None = None
    length: LengthClass | None = None
    bucket: Bucket = Bucket.HOUR


class GoodputQuery(PeriodQuery, frozen=True, kw_only=True):
    """Filters and groups of an organization's requests."""

    group_by: list[GoodputGroup] = field(default_factory=list)


class DeploymentGoodputQuery(PeriodQuery, frozen=True, kw_only=True):
    """Filters and groups of the deployment's requests."""

    organization_id: UUID | None = None
    group_by: list[DeploymentGroup] = field(default_factory=list)


class CostQuery(Query, frozen=True, kw_only=True):
    """Filter by period; the last 24 hours by default."""

    start: LedgerMoment | None = None
    end: LedgerMoment | None = None


class PoolCosts(Struct, frozen=True, kw_only=True):
    """All pools that had a replica or a good token in the period."""

    start: datetime
    end: datetime
    currency: str
    data: list[PoolCost]


async def get_slo(call: AdminCall, organization_id: UUID, query: SloQuery) -> SloReport:
    """Get an organization's objectives: attainment, error budget and burn rates.

    The figures cover only the organization's own requests. The objectives are the deployment's.
    """
    await call.require_organization(organization_id)
    return await _report(call, query, organization_id)


async def get_slo_of_all(call: AdminCall, query: SloQuery) -> SloReport:
    """Get the objectives over all organizations: attainment, error budget and burn rates."""
    return await _report(call, query, None)


async def get_goodput(call: AdminCall, organization_id: UUID, query: GoodputQuery) -> Page[GoodputTotals]:
    """Get an organization's requests within their objectives, by minute, hour or day, newest first, in the requested
    groups."""
    await call.require_organization(organization_id)
    return await _totals(call, query, organization_id, [group.value for group in query.group_by])


async def get_goodput_of_all(call: AdminCall, query: DeploymentGoodputQuery) -> Page[GoodputTotals]:
    """Get all requests within their objectives, by minute, hour or day, newest first, in the requested groups."""
    groups = [group.value for group in query.group_by]
    return await _totals(call, query, query.organization_id, groups, deployment=True)


async def get_pool_costs(call: AdminCall, query: CostQuery) -> PoolCosts:
    """Get the cost of each pool, in total and per million good tokens.

    The cost is the replica-hours in desired state times the pool's `price_per_replica_hour`. A replica counts while it
    is in desired state, whether it works or not. Amounts cover the whole minutes in which the pool had a price, and are
    divided by the good tokens of the same minutes. `start` is rounded down to a whole minute, and `end` up, but at most
    to now.
    """
    begin, end = period(query.start, query.end, LAST_DAY)
    # the future is not rented yet
    begin, end = _minute_of(begin), min(_minute_of(end - MICROSECOND) + MINUTE, datetime.now(UTC))
    if begin >= end:
        return PoolCosts(start=begin, end=begin, currency=call.currency, data=[])
    versions: list[tuple[datetime, tuple[Pool, ...]]] = []
    for row in await call.connection.fetch(VERSIONS, begin, end):
        try:
            versions.append((row["created_at"], document.decode(row["version"], row["document"]).pools))
        except ConfigError:  # from a newer release: the version before stays in force, as in this release's gateways
            continue
    pools = rented(versions, begin, end)
    tokens = await _good_tokens(call, pools, begin, end)
    return PoolCosts(start=begin, end=end, currency=call.currency, data=pool_costs(pools, tokens))


async def _good_tokens(
    call: AdminCall, pools: dict[str, Rented], begin: datetime, end: datetime
) -> dict[str, GoodTokens]:
    spans = [(name, *span) for name, each in pools.items() for span in each.priced]
    rows = totals([begin, end, *(edge for _, *span in spans for edge in span)], {"pool"}).c
    names, since, until = ([span[at] for span in spans] for at in range(3))
    moments = (literal(each, _MOMENTS) for each in (since, until))
    unnested = func.unnest(literal(names, ARRAY(Text)), *moments)
    priced = unnested.table_valued("pool", "since", "until", name="priced").render_derived()
    within = exists().where(priced.c.pool == rows.pool, rows.at >= priced.c.since, rows.at < priced.c.until)
    tokens = func.sum(rows.good_tokens)
    statement = select(
        rows.pool, tokens.cast(BigInteger), func.coalesce(tokens.filter(within), 0).cast(BigInteger)
    ).group_by(rows.pool)
    return {pool: GoodTokens(*tokens) for pool, *tokens in await fetch(call.connection, statement)}


def _minute_of(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


async def _report(call: AdminCall, query: SloQuery, organization_id: UUID | None) -> SloReport:
    """The report for an organization, or for the deployment if organization_id is None."""
    now = await present(
        call.connection, organization_id, tier=query.tier, project_id=query.project_id, model=query.model
    )
    return SloReport(
        version=now.version,
        added_up_until=now.until,
        least_bad=MIN_BAD,
        objectives=[_told(each, now.since.get((each.objective.tier, each.objective.length))) for each in now.standings],
    )


def _told(standing: Standing, since: datetime | None) -> ObjectiveStanding:
    objective, rates = standing.objective, standing.rates
    return ObjectiveStanding(
        tier=objective.tier,
        length=objective.length,
        ttft_ms=objective.ttft_ms,
        tpot_ms=objective.tpot_ms,
        itl_max_ms=objective.itl_max_ms,
        target=objective.target,
        promised_since=since,
        windows=[
            SloWindow(
                window=name,
                counted=count.counted,
                good=count.good,
                over_share=count.over_share,
                attainment=count.attainment,
                burn_rate=rates[name],
            )
            for name, count in standing.windows.items()
        ],
        budget_left=standing.budget_left,
        burning=[_alert(pair) for pair in standing.burning],
        too_few=[_alert(pair) for pair in standing.too_few],
    )


def _alert(pair: BurnPair) -> BurnAlert:
    return BurnAlert(long=pair.long, short=pair.short, threshold=pair.threshold)


async def _totals(
    call: AdminCall, query: PeriodQuery, organization_id: UUID | None, groups: list[str], *, deployment: bool = False
) -> Page[GoodputTotals]:
    """deployment: whether to leave out requests beyond their organization's share."""
    begin, end = period(query.start, query.end, LAST_DAY)
    most = MAX.get(query.bucket)
    if most is not None and end - begin > most:
        raise InvalidField(
            f"Invalid value for 'bucket': a {query.bucket}'s totals are available for {most.days} days at most.",
            param="bucket",
        )
    filters: dict[str, object] = {
        "organization_id": organization_id,
        "project_id": query.project_id,
        "model": query.model,
        "tier": query.tier,
        "length": query.length,
    }
    filters = {name: value for name, value in filters.items() if value is not None}
    fields = [name for group, name in FIELDS.items() if group in groups]
    rows = totals((begin, end), {*fields, *filters}, by_minute=query.bucket is Bucket.MINUTE).c
    unit: ColumnElement[str] = literal_column(f"'{query.bucket.value}'")
    at = func.date_trunc(unit, rows.at, literal_column("'UTC'"), type_=DateTime(timezone=True)).label("at")
    chosen: list[Label[Any]] = [] if query.bucket is Bucket.ALL else [at]
    chosen += [rows[name].label(name) for name in fields]
    sums = [func.sum(rows[name]).cast(BigInteger).label(name) for name in COUNTS]
    found = (
        select(*chosen, *sums)
        .where(*(rows[name] == value for name, value in filters.items()))
        .group_by(*chosen)
        .subquery("found")
    )
    absent: dict[str, ColumnElement[Any]] = {name: null() for name in ("at", *FIELDS.values()) if name not in found.c}
    counted = found.c.counted - found.c.over_share if deployment else found.c.counted
    goodput = found.c.good.cast(Double) / func.nullif(counted, 0)
    statement = select(*columns_of(GoodputTotals, found, counted=counted, goodput=goodput, **absent))
    if chosen:
        return await page_of(
            call.connection, GoodputTotals, statement, query, *(found.c[column.key] for column in chosen)
        )
    if query.cursor is not None:
        raise InvalidField("Invalid value for 'cursor': a single total has no pages. Leave it out.", param="cursor")
    return await single_row_page(call.connection, GoodputTotals, statement)
