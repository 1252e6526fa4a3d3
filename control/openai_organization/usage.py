"""OpenAI's usage and costs of an organization, from the totals of all other usage reports and of invoices.

Days and hours come from roll-ups, minutes from the ledger's events. `embeddings` has the usage of models for vectors
and scores, and `completions` all other usage. Together they have everything that is billed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, field
from sqlalchemy import BigInteger, ColumnElement, FromClause, func, literal, select
from sqlalchemy.sql.expression import literal_column

from contracts.errors import InvalidField
from contracts.pooling import Task
from control.api.call import AdminCall
from control.billing.events import arrived_within
from control.billing.usage import SUMMED, Bucket, totals_of_period
from control.openai_organization.buckets import MAX_RESULTS, BucketOf, BucketQuery, Span, Width, span_of
from storage.rows import fetch
from storage.tables.metering import usage_events

MICRO = 1_000_000
COST_BUCKETS = (7, 180)


class UsageGroup(StrEnum):
    """Fields that usage is grouped by."""

    PROJECT = "project_id"
    KEY = "api_key_id"
    MODEL = "model"


class CostGroup(StrEnum):
    """Fields that costs are grouped by. A line item is a model."""

    PROJECT = "project_id"
    KEY = "api_key_id"
    LINE_ITEM = "line_item"


_COLUMNS = {"project_id": "project_id", "api_key_id": "key_id", "model": "model", "line_item": "model"}


class UsageQuery(BucketQuery, frozen=True, kw_only=True):
    """Usage by bucket. group_by may be repeated."""

    bucket_width: Width = Width.DAY
    group_by: Annotated[list[UsageGroup], Meta(max_length=3)] = field(default_factory=list)


class CostQuery(BucketQuery, frozen=True, kw_only=True):
    """Costs by day; at most 180 days in a page. group_by may be repeated."""

    bucket_width: Literal["1d"] = "1d"
    group_by: Annotated[list[CostGroup], Meta(max_length=3)] = field(default_factory=list)


class CompletionsResult(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one group in one bucket. Fields that it is not grouped by are null. input_tokens include cached and
    cache-written tokens."""

    input_tokens: int
    output_tokens: int
    input_cached_tokens: int
    input_cache_write_tokens: int
    num_model_requests: int
    project_id: UUID | None = None
    api_key_id: UUID | None = None
    model: str | None = None
    user_id: str | None = None
    """Always null, like the next two fields: none of them is stored."""
    batch: bool | None = None
    service_tier: str | None = None
    object: Literal["organization.usage.completions.result"] = "organization.usage.completions.result"


class EmbeddingsResult(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one group in one bucket. Fields that it is not grouped by are null."""

    input_tokens: int
    num_model_requests: int
    project_id: UUID | None = None
    api_key_id: UUID | None = None
    model: str | None = None
    user_id: str | None = None
    """Always null: it is not stored."""
    object: Literal["organization.usage.embeddings.result"] = "organization.usage.embeddings.result"


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Money. micro: an extension with the exact amount in millionths of the currency."""

    value: float
    currency: str
    micro: int


class CostsResult(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of one group on one day. Fields that it is not grouped by are null."""

    amount: Amount
    line_item: str | None = None
    project_id: UUID | None = None
    api_key_id: UUID | None = None
    object: Literal["organization.costs.result"] = "organization.costs.result"


class CompletionsBucket(BucketOf, frozen=True, kw_only=True):
    """One bucket."""

    results: list[CompletionsResult]


class EmbeddingsBucket(BucketOf, frozen=True, kw_only=True):
    """One bucket."""

    results: list[EmbeddingsResult]


class CostsBucket(BucketOf, frozen=True, kw_only=True):
    """One day."""

    results: list[CostsResult]


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    has_more: bool
    next_page: str | None
    """Send it as `page` for the next page; null at the end."""
    object: Literal["page"] = "page"


class CompletionsPage(_Page, frozen=True, kw_only=True):
    """Buckets, oldest first."""

    data: list[CompletionsBucket]


class EmbeddingsPage(_Page, frozen=True, kw_only=True):
    """Buckets, oldest first."""

    data: list[EmbeddingsBucket]


class CostsPage(_Page, frozen=True, kw_only=True):
    """Days, oldest first."""

    data: list[CostsBucket]


async def organization_completions_usage(call: AdminCall, query: UsageQuery) -> CompletionsPage:
    """Get the usage of models that generate text, in the format of OpenAI's usage API."""

    def result(row: Any) -> CompletionsResult:
        return CompletionsResult(
            input_tokens=row["prompt_tokens"],
            output_tokens=row["completion_tokens"],
            input_cached_tokens=row["cached_tokens"],
            input_cache_write_tokens=row["cache_write_tokens"],
            num_model_requests=row["requests"],
            **_group(row, query),
        )

    span = span_of(query, query.bucket_width)
    return CompletionsPage(**await _page(call, query, span, CompletionsBucket, result, pooling=False))


async def organization_embeddings_usage(call: AdminCall, query: UsageQuery) -> EmbeddingsPage:
    """Get the usage of models that compute vectors or scores, in the format of OpenAI's usage API."""

    def result(row: Any) -> EmbeddingsResult:
        tokens, requests = row["prompt_tokens"], row["requests"]
        return EmbeddingsResult(input_tokens=tokens, num_model_requests=requests, **_group(row, query))

    span = span_of(query, query.bucket_width)
    return EmbeddingsPage(**await _page(call, query, span, EmbeddingsBucket, result, pooling=True))


async def organization_costs(call: AdminCall, query: CostQuery) -> CostsPage:
    """Get an organization's costs by day, in the format of OpenAI's costs API. The sums are those of its invoices."""
    currency = call.currency.lower()

    def result(row: Any) -> CostsResult:
        micro = row["amount_micro"]
        return CostsResult(amount=Amount(value=micro / MICRO, currency=currency, micro=micro), **_group(row, query))

    span = span_of(query, Width.DAY, COST_BUCKETS)
    return CostsPage(**await _page(call, query, span, CostsBucket, result, pooling=None))


async def _page(
    call: AdminCall,
    query: UsageQuery | CostQuery,
    span: Span,
    bucket: Callable[..., BucketOf],
    result: Callable[[Any], msgspec.Struct],
    *,
    pooling: bool | None,
) -> dict[str, Any]:
    """The fields of a page with the span's buckets. result: converts a row of `_sums`. pooling: see `_sums`."""
    found = await _sums(call, query, Width(query.bucket_width), span, pooling=pooling)
    data = [
        bucket(
            start_time=int(start.timestamp()),
            end_time=int((start + span.width).timestamp()),
            results=[result(row) for row in found[start]],
        )
        for start in span.starts
    ]
    return {"data": data, "has_more": span.next_page is not None, "next_page": span.next_page}


def _group(row: Any, query: UsageQuery | CostQuery) -> dict[str, Any]:
    return {group.value: row[_COLUMNS[group.value]] for group in query.group_by}


async def _sums(
    call: AdminCall, query: UsageQuery | CostQuery, width: Width, span: Span, *, pooling: bool | None
) -> dict[datetime, list[Any]]:
    """Sums by bucket and group. pooling: True for only models that make vectors or scores, False for only others, None
    for all. Raises InvalidField for more results than a page may have."""
    organization_id = query.organization_id or call.principal.organization_id
    await call.require_organization(organization_id)
    pooled = [model.name for model in call.fleet.models if model.task is not Task.TEXT]
    if pooling and not pooled:
        return defaultdict(list)
    wanted = list(dict.fromkeys(_COLUMNS[group.value] for group in query.group_by))
    several: dict[str, list[Any]] = {
        "project_id": query.project_ids,
        "key_id": query.api_key_ids,
        "model": query.models,
    }
    narrowed = [name for name, values in several.items() if values]
    if pooling is not None and pooled:
        narrowed.append("model")
    rows, at = _rows(width, span, frozenset(["organization_id", *wanted, *narrowed]))
    conditions: list[ColumnElement[bool]] = [rows.c.organization_id == organization_id]
    conditions += [rows.c[name].in_(values) for name, values in several.items() if values]
    if pooling is not None and pooled:
        conditions.append(rows.c.model.in_(pooled) if pooling else rows.c.model.not_in(pooled))
    groups = [at, *(rows.c[name] for name in wanted)]
    sums = (func.sum(rows.c[name]).cast(BigInteger).label(name) for name in SUMMED)
    statement = select(at.label("at"), *groups[1:], *sums).where(*conditions).group_by(*groups).order_by(*groups)
    found: dict[datetime, list[Any]] = defaultdict(list)
    listed = await fetch(call.connection, statement.limit(MAX_RESULTS + 1))
    if len(listed) > MAX_RESULTS:
        raise InvalidField(
            f"More than {MAX_RESULTS} results; lower 'limit', or group by fewer fields.", param="group_by"
        )
    for row in listed:
        found[_moment(row["at"])].append(row)
    return found


def _rows(width: Width, span: Span, columns: frozenset[str]) -> tuple[FromClause, ColumnElement[Any]]:
    """The totals of the page's buckets, and the column with their starts."""
    begin, end = span.starts[0], span.end
    if width is Width.DAY:
        rows = totals_of_period(Bucket.DAY, begin, end, columns)
        return rows, rows.c.day
    if width is Width.HOUR:
        rows = totals_of_period(Bucket.HOUR, begin, end, columns)
        return rows, rows.c.hour
    event = usage_events.c
    minute = func.date_trunc(literal_column("'minute'"), event.requested_at, literal_column("'UTC'"))
    requests = literal(1, BigInteger, literal_execute=True)
    events = (
        select(
            minute.label("minute"),
            *(event[name] for name in sorted(columns)),
            *((requests if name == "requests" else event[name]).label(name) for name in SUMMED),
        )
        .where(event.billed, *arrived_within(begin, end))
        .subquery()
    )
    return events, events.c.minute


def _moment(at: datetime | date) -> datetime:
    return at.astimezone(UTC) if isinstance(at, datetime) else datetime.combine(at, time(), UTC)
