"""Previews a limit of prompts: counts past requests that it would have refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from sqlalchemy import BigInteger, Integer, func, select

from contracts.dated_request_id import first_at
from contracts.generation import Tier
from control.api.call import AdminCall
from control.api.moments import moment
from control.api.schemas import LedgerMoment, Query
from gateway.limits.levels import MAX_PER_MINUTE
from storage.rows import equal, fetch, record_of
from storage.tables.core import api_keys, projects, request_traces

LAST = timedelta(days=7)
MAX_KEYS = 100


class CappedKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key's requests. refused: those whose prompt is longer than the limit. key_name, project_name: null if
    deleted. p99_prompt_tokens: the prompt length that 99 % of its requests do not exceed."""

    project_id: UUID | None
    project_name: str | None
    key_id: UUID | None
    key_name: str | None
    requests: int
    refused: int
    p99_prompt_tokens: int
    longest_prompt_tokens: int


class CapPreview(msgspec.Struct, frozen=True, kw_only=True):
    """An organization's requests since `start`, compared with a limit for their prompts. data: by key, the one with
    most refusals first. has_more: whether some keys are not listed; the sums include them."""

    start: datetime
    max_prompt_tokens: int | None
    requests: int
    refused: int
    keys_refused: int
    longest_prompt_tokens: int
    has_more: bool
    data: list[CappedKey]


class CapQuery(Query, frozen=True, kw_only=True):
    """max_prompt_tokens: the limit to try; null refuses nothing and shows how long prompts are. tier, project_id,
    key_id: the scope of the limit. start: by default, 7 days ago."""

    max_prompt_tokens: Annotated[int, Meta(ge=1, le=MAX_PER_MINUTE)] | None = None
    tier: Tier | None = None
    project_id: UUID | None = None
    key_id: UUID | None = None
    start: LedgerMoment | None = None


async def get_preview(call: AdminCall, organization_id: UUID, query: CapQuery) -> CapPreview:
    """Count by key the past requests that a limit for prompts would have refused.

    The counts come from traces, so they cover the traces' retention, and only requests whose prompt was counted.
    """
    await call.require_organization(organization_id)
    start = datetime.now(UTC) - LAST if query.start is None else moment(query.start, "start")
    trace = request_traces.c
    refused = func.count().filter(trace.prompt_tokens > (query.max_prompt_tokens or MAX_PER_MINUTE))
    by_key = (
        select(
            trace.project_id,
            trace.key_id,
            func.count().label("requests"),
            refused.label("refused"),
            func.percentile_disc(0.99).within_group(trace.prompt_tokens).cast(Integer).label("p99_prompt_tokens"),
            func.max(trace.prompt_tokens).label("longest_prompt_tokens"),
        )
        .where(
            trace.organization_id == organization_id,
            trace.request_id >= first_at(start.timestamp()),
            trace.prompt_tokens.is_not(None),
            equal(trace.tier, query.tier),
            equal(trace.project_id, query.project_id),
            equal(trace.key_id, query.key_id),
        )
        .group_by(trace.project_id, trace.key_id)
        .cte("by_key")
    )
    key = by_key.c
    sums = [
        func.sum(key.requests).over().cast(BigInteger).label("all_requests"),
        func.sum(key.refused).over().cast(BigInteger).label("all_refused"),
        func.count().filter(key.refused > 0).over().label("keys_refused"),
        func.max(key.longest_prompt_tokens).over().label("longest"),
        func.count().over().label("keys"),
    ]
    rows = await fetch(
        call.connection,
        select(by_key, projects.c.name.label("project_name"), api_keys.c.name.label("key_name"), *sums)
        .outerjoin(projects, projects.c.id == key.project_id)
        .outerjoin(api_keys, api_keys.c.id == key.key_id)
        .order_by(key.refused.desc(), key.longest_prompt_tokens.desc(), key.key_id)
        .limit(MAX_KEYS),
    )
    first = rows[0] if rows else {}
    return CapPreview(
        start=start,
        max_prompt_tokens=query.max_prompt_tokens,
        requests=first.get("all_requests", 0),
        refused=first.get("all_refused", 0),
        keys_refused=first.get("keys_refused", 0),
        longest_prompt_tokens=first.get("longest", 0),
        has_more=first.get("keys", 0) > MAX_KEYS,
        data=[record_of(CappedKey, row) for row in rows],
    )
