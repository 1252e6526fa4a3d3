"""Computes what tenants paid for good tokens: billed amounts divided by the tokens of good requests, separately for
input and output, by tenant, tier and length class.

A request is good if it met its objective, by the objectives in force (`control.slo.judgement`). Amounts include all
billed requests, so a missed objective makes good tokens more expensive. Each request's amount is the ledger's. The part
of the output is its tokens at the price of the request's class, rounded to a micro-unit. The part of the input is the
rest, so that both add up to the invoice's amount.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct, field
from sqlalchemy import BigInteger, ColumnElement, Numeric, Select, Text, and_, case, func, literal, null, select
from sqlalchemy.sql.expression import literal_column

from contracts.dated_request_id import first_at
from contracts.errors import InvalidField
from contracts.generation import Tier
from contracts.length_class import LONG_TOKENS, MEDIUM_TOKENS, LengthClass
from control.api.call import AdminCall
from control.api.moments import period
from control.api.schemas import LedgerMoment, Query
from control.billing.events import in_partitions
from control.slo.judged import judged, newest_version
from gateway.metering.pricing.price import PER_TOKENS, WHOLE
from storage.rows import fetch
from storage.tables.core import request_traces
from storage.tables.metering import prices, usage_events

LAST_DAY, MAX = timedelta(days=1), timedelta(days=31)
_E, _T = usage_events.c, request_traces.c
LENGTH: ColumnElement[str] = case(
    (literal_column(str(MEDIUM_TOKENS)) > _E.prompt_tokens, literal_column(f"'{LengthClass.SHORT}'", Text)),
    (literal_column(str(LONG_TOKENS)) > _E.prompt_tokens, literal_column(f"'{LengthClass.MEDIUM}'", Text)),
    else_=literal_column(f"'{LengthClass.LONG}'", Text),
)
"""A request's length class by the ledger's count of prompt tokens, which its trace has too."""
_WHOLE: ColumnElement[Any] = literal_column(str(PER_TOKENS * WHOLE))
_HALF: ColumnElement[Any] = literal_column(str(PER_TOKENS * WHOLE // 2))
_EXACT = _E.completion_tokens.cast(Numeric) * prices.c.output_micro * _E.price_percent
OUTPUT = func.coalesce(func.div(_EXACT + _HALF, _WHOLE).cast(BigInteger), literal_column("0", BigInteger))
"""A request's amount for its output, in micro-units; integers only."""


class CostGroup(StrEnum):
    """Columns that totals are grouped by."""

    ORGANIZATION = "organization"
    TIER = "tier"
    LENGTH = "length"


GROUPS: dict[CostGroup, ColumnElement[Any]] = {
    CostGroup.ORGANIZATION: _E.organization_id,
    CostGroup.TIER: _E.tier,
    CostGroup.LENGTH: LENGTH,
}
NAMES = {CostGroup.ORGANIZATION: "organization_id", CostGroup.TIER: "tier", CostGroup.LENGTH: "length"}


class TokenCosts(Struct, frozen=True, kw_only=True):
    """Billed requests of one group, and the cost of a million of their good tokens. Amounts are in millionths of the
    currency. Fields that the report is not grouped by are null."""

    organization_id: UUID | None
    tier: str | None
    length: str | None
    requests: int
    good: int
    """Requests that kept their objective."""
    input_tokens: int
    output_tokens: int
    good_input_tokens: int
    good_output_tokens: int
    amount_micro: int
    """The sum of both parts, which is the invoice's amount."""
    input_amount_micro: int
    output_amount_micro: int
    per_million_good_input_micro: int | None
    """Null without good tokens."""
    per_million_good_output_micro: int | None
    """Null without good tokens."""


class TokenCostReport(Struct, frozen=True, kw_only=True):
    """The costs of a period, ordered by group."""

    start: datetime
    end: datetime
    currency: str
    data: list[TokenCosts]


class TokenCostQuery(Query, frozen=True, kw_only=True):
    """Filter by arrival. The default is the last 24 hours, the maximum 31 days. group_by may be repeated. Its default
    is tier and length and, for the report on all tenants, the organization."""

    start: LedgerMoment | None = None
    end: LedgerMoment | None = None
    tier: Tier | None = None
    length: LengthClass | None = None
    group_by: list[CostGroup] = field(default_factory=list)


async def get_token_costs(call: AdminCall, organization_id: UUID, query: TokenCostQuery) -> TokenCostReport:
    """Get what an organization paid per million good input and output tokens, by tier and length class."""
    await call.require_organization(organization_id)
    return await _report(call, query, organization_id)


async def get_token_costs_of_all(call: AdminCall, query: TokenCostQuery) -> TokenCostReport:
    """Get what tenants paid per million good input and output tokens, by tenant, tier and length class."""
    return await _report(call, query, None)


async def _report(call: AdminCall, query: TokenCostQuery, organization_id: UUID | None) -> TokenCostReport:
    begin, end = period(query.start, query.end, LAST_DAY)
    if end - begin > MAX:
        raise InvalidField(
            f"Invalid value for 'start': at most {MAX.days} days are added up. Choose a shorter period.", param="start"
        )
    groups = query.group_by or ([] if organization_id else [CostGroup.ORGANIZATION])
    if not query.group_by:
        groups = [*groups, CostGroup.TIER, CostGroup.LENGTH]
    rows = await fetch(call.connection, _statement(list(dict.fromkeys(groups)), query, organization_id, begin, end))
    data = [
        TokenCosts(
            **{name: row[name] for name in TokenCosts.__struct_fields__ if not name.startswith("per_million")},
            per_million_good_input_micro=_for_a_million(row["input_amount_micro"], row["good_input_tokens"]),
            per_million_good_output_micro=_for_a_million(row["output_amount_micro"], row["good_output_tokens"]),
        )
        for row in rows
        if row["requests"]
    ]
    return TokenCostReport(start=begin, end=end, currency=call.currency, data=data)


def _statement(
    groups: list[CostGroup], query: TokenCostQuery, organization_id: UUID | None, begin: datetime, end: datetime
) -> Select[Any]:
    first, past = (literal(first_at(each.timestamp()), literal_execute=True) for each in (begin, end))
    traced = [_T.request_id >= first, _T.request_id < past]
    billed = [in_partitions(first, past), _E.billed, _E.requested_at >= begin, _E.requested_at < end]
    if organization_id is not None:
        traced.append(_T.organization_id == organization_id)
        billed.append(_E.organization_id == organization_id)
    if query.tier is not None:
        billed.append(_E.tier == query.tier.value)
    if query.length is not None:
        billed.append(LENGTH == query.length.value)  # noqa: SIM300  the column must come first to yield SQL
    each = judged(newest_version().scalar_subquery(), *traced, extra=(_T.request_id,))
    is_good = func.coalesce(each.c.is_good, literal_column("false"))
    joined = usage_events.outerjoin(
        each, and_(each.c.request_id == _E.request_id, each.c.organization_id == _E.organization_id)
    ).outerjoin(prices, prices.c.version == _E.price_version)
    chosen = [GROUPS[group].label(NAMES[group]) for group in groups]
    absent = [null().label(name) for group, name in NAMES.items() if group not in groups]

    def total(column: ColumnElement[Any], *conditions: ColumnElement[bool]) -> ColumnElement[int]:
        summed = func.sum(column).filter(*conditions) if conditions else func.sum(column)
        return func.coalesce(summed, literal_column("0")).cast(BigInteger)

    sums = {
        "requests": func.count(),
        "good": func.count().filter(is_good),
        "input_tokens": total(_E.prompt_tokens),
        "output_tokens": total(_E.completion_tokens),
        "good_input_tokens": total(_E.prompt_tokens, is_good),
        "good_output_tokens": total(_E.completion_tokens, is_good),
        "amount_micro": total(_E.amount_micro),
        "input_amount_micro": total(_E.amount_micro - OUTPUT),
        "output_amount_micro": total(OUTPUT),
    }
    statement = select(*chosen, *absent, *(column.label(name) for name, column in sums.items())).select_from(joined)
    grouped = [GROUPS[group] for group in groups]
    return statement.where(*billed).group_by(*grouped).order_by(*grouped)


def _for_a_million(amount_micro: int, tokens: int) -> int | None:
    """The amount of a million tokens, to the nearest micro-unit, halves up."""
    return (2 * amount_micro * PER_TOKENS + tokens) // (2 * tokens) if tokens else None
