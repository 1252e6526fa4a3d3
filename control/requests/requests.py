"""Reports single requests with their decision, rule, phases, engine and cost.

It has two sources: the trace, written for every request with a known key, refused ones included, and the ledger's
attempts. Either may exist without the other: traces are best effort, the ledger has only admitted requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta
from sqlalchemy import BigInteger, Boolean, ColumnElement, case, func, select
from sqlalchemy.sql.expression import literal_column

from contracts.dated_request_id import first_at
from contracts.generation import Tier
from contracts.length_class import LengthClass, length_class
from contracts.request_id import request_id_of
from contracts.split import Side
from control.api.call import AdminCall, not_found
from control.api.moments import moment
from control.api.pages import page_of
from control.api.schemas import LedgerMoment, ModelName, Name, Page, PageQuery
from control.router_view.placement import Placement
from control.slo.judgement import CLIENT_GONE, FAILED, REFUSED
from gateway.serving.request import Salts
from gateway.wire.session import recorded_names, session_name
from storage.rows import columns_of, equal, fetch, fetchrow, record_of
from storage.tables.core import request_traces
from storage.tables.metering import usage_events

LAST_DAY = timedelta(days=1)
SessionName = Annotated[str, Meta(min_length=1, max_length=1_024)]


class Decision(StrEnum):
    """The outcome of a request."""

    SERVED = "served"
    REFUSED = "refused"
    """A 4xx: a limit, the key, access, or the request itself; `rule` and `reason` name it."""
    FAILED = "failed"
    """A 5xx, or a stream that ended in an error of this deployment."""
    ABANDONED = "abandoned"
    """The client left before it had any text."""


_CODE, _STREAMED = func.coalesce(request_traces.c.error_code, ""), request_traces.c.status < 400
DECISION = case(
    (_STREAMED & (_CODE == CLIENT_GONE) & request_traces.c.ttft_ms.is_(None), Decision.ABANDONED.value),
    (_STREAMED & _CODE.in_(REFUSED), Decision.REFUSED.value),
    (literal_column(FAILED, Boolean), Decision.FAILED.value),
    (_STREAMED, Decision.SERVED.value),
    (request_traces.c.status == 499, Decision.ABANDONED.value),
    else_=Decision.REFUSED.value,
)


AMOUNT_MICRO = (
    select(func.coalesce(func.sum(usage_events.c.amount_micro), 0).cast(BigInteger))
    .where(usage_events.c.request_id == request_traces.c.request_id, usage_events.c.billed)
    .scalar_subquery()
)


class RequestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A request in a list. request_id: its `x-request-id`. ttft_ms: the time from its arrival to its first text.
    prompt_tokens, completion_tokens: null if no engine counted them. amount_micro: the billed amount, in millionths of
    the currency. session: the session name from a header, or a digest of the name in the body; null without a name."""

    request_id: str
    organization_id: UUID
    project_id: UUID | None
    key_id: UUID | None
    decision: Decision
    status: int
    error_code: str | None
    endpoint: str | None
    model: str | None
    tier: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    amount_micro: int
    total_ms: float
    ttft_ms: float | None
    session: str | None
    recorded_at: datetime


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt on an engine. amount_micro: in millionths of the deployment's currency. price_version: null without a
    price. engine, pool: null for tenants. adapter: null if the model ran without one."""

    attempt: int
    engine: str | None
    pool: str | None
    adapter: str | None
    stream: bool
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    outcome: str
    finish: str
    billed: bool
    price_version: int | None
    amount_micro: int
    status: int | None
    error_code: str | None
    phases_ms: dict[str, float]
    opened_at: datetime
    closed_at: datetime
    gateway_id: str


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Engine and token timing of a request. A field is null if it was not measured or the engine did not report it.

    pool, replica_id, side: of the last attempt that got an engine. canary: whether it ran on the model's canary. side:
    the side of the model's split; null without a split. release: the release that made the split, if the request counts
    for it. Only the operating organization sees these five fields. They are null for tenants, who could otherwise
    choose the traffic on which a release tests its candidate.

    prompt_tokens, length: of the whole prompt. A short prompt has fewer than 4,096 tokens, a long one at least 16,384.
    ttft_ms: from arrival to the first generated text. tpot_ms: mean time per token after the first, if the engine
    finished the response. itl_max_ms: the longest gap between two arrivals of the engine's tokens. gaps_over_100ms: the
    number of longer gaps than 100 ms. client_stall_ms: the time during which the client's connection accepted no data.

    engine_queue_ms, engine_prefill_ms, engine_grammar_ms: the parts of the phase `engine` as reported by the engine;
    the last one ends when the output's grammar is compiled. retractions: how often the engine took back the request's
    memory and restarted it.
    """

    pool: str | None
    replica_id: str | None
    canary: bool | None
    side: Side | None
    release: str | None
    stream: bool | None
    attempts: int
    prompt_tokens: int | None
    length: LengthClass | None
    cached_tokens: int | None
    completion_tokens: int | None
    ttft_ms: float | None
    tpot_ms: float | None
    itl_max_ms: float | None
    gaps_over_100ms: int | None
    client_stall_ms: float | None
    engine_queue_ms: float | None
    engine_prefill_ms: float | None
    engine_grammar_ms: float | None
    retractions: int | None


_PLACE = ("pool", "replica_id", "canary", "side", "release")


class RequestDetail(msgspec.Struct, frozen=True, kw_only=True):
    """All recorded data of a request. rule: the limit that refused it. counters: their values at that moment. Both are
    null if no limit refused it.

    phases_ms: how the wall time was spent. amount_micro: of the billed attempt. served_from: the request whose
    generation this response reused, at no cost; null if it has its own. trace_id: the OpenTelemetry trace; null without
    spans.

    over_share: for a request refused because the pool was full, whether its organization exceeded its share of the
    pool, without which there would have been room. Null for all other requests.

    service_class: `interactive`, `standard` or `offline`; null if the request was refused before its class was known.

    session: the session name from a header, or a digest of the name in the body. session_agent: the agent within the
    session; null for the first agent. session_parent: the agent or session that started this agent. Null if not named.

    latency: token timing; null without a record.
    """

    request_id: str
    organization_id: UUID
    project_id: UUID | None
    key_id: UUID | None
    client_request_id: str | None
    decision: Decision | None
    status: int | None
    error_code: str | None
    reason: str | None
    rule: dict[str, Any] | None
    counters: list[dict[str, Any]] | None
    over_share: bool | None
    service_class: str | None
    session: str | None
    session_agent: str | None
    session_parent: str | None
    endpoint: str | None
    model: str | None
    tier: str | None
    total_ms: float | None
    phases_ms: dict[str, float]
    served_from: str | None
    latency: Latency | None
    trace_id: str | None
    recorded_at: datetime | None
    amount_micro: int
    attempts: list[Attempt]


class RequestQuery(PageQuery, frozen=True, kw_only=True):
    """Filters of the organization's requests, newest first. start, end: requests that arrived at `start` or later, and
    before `end`. session: the name that the client uses, or the one that a request shows."""

    project_id: UUID | None = None
    key_id: UUID | None = None
    status: Annotated[int, Meta(ge=100, le=599)] | None = None
    error_code: Name | None = None
    model: ModelName | None = None
    tier: Tier | None = None
    session: SessionName | None = None
    start: LedgerMoment | None = None
    end: LedgerMoment | None = None


async def list_requests(call: AdminCall, organization_id: UUID, query: RequestQuery) -> Page[RequestSummary]:
    """List an organization's requests without their content, newest first. Refused requests are included."""
    await call.require_organization(organization_id)
    own = request_traces.c.organization_id == organization_id
    since = None if query.start is None else moment(query.start, "start")
    return await _page(call, query, own, since=since, organization_id=organization_id)


class DeploymentRequestQuery(RequestQuery, frozen=True, kw_only=True):
    """Filters. start, end: requests that arrived at `start` or later, and before `end`. start defaults to 24 hours ago.
    session: without `organization_id`, only a name from a header."""

    organization_id: UUID | None = None
    pool: Name | None = None


async def list_requests_of_all(call: AdminCall, query: DeploymentRequestQuery) -> Page[RequestSummary]:
    """List the requests of all organizations without their content, newest first. Refused requests are included."""
    since = datetime.now(UTC) - LAST_DAY if query.start is None else moment(query.start, "start")
    owner = equal(request_traces.c.organization_id, query.organization_id)
    pool = equal(request_traces.c.pool, query.pool)
    return await _page(call, query, owner, pool, since=since, organization_id=query.organization_id)


async def _page(
    call: AdminCall,
    query: RequestQuery,
    *conditions: ColumnElement[bool],
    since: datetime | None,
    organization_id: UUID | None,
) -> Page[RequestSummary]:
    table = request_traces.c
    computed = {"decision": DECISION, "amount_micro": AMOUNT_MICRO}
    arrived = [] if since is None else [table.request_id >= first_at(since.timestamp())]
    if query.end is not None:
        arrived.append(table.request_id < first_at(moment(query.end, "end").timestamp()))
    named = [] if query.session is None else [table.session.in_(session_names(call, query.session, organization_id))]
    statement = select(*columns_of(RequestSummary, request_traces, **computed)).where(
        *conditions,
        *arrived,
        equal(table.project_id, query.project_id),
        equal(table.key_id, query.key_id),
        equal(table.status, query.status),
        equal(table.error_code, query.error_code),
        equal(table.model, query.model),
        equal(table.tier, query.tier),
        *named,
    )
    return await page_of(call.connection, RequestSummary, statement, query, table.request_id)


def session_names(call: AdminCall, given: str, organization_id: UUID | None) -> tuple[str, ...]:
    """The names under which a session may be recorded. organization_id: None for any, if named in a header."""
    if organization_id is None:
        return (session_name(given),)
    return recorded_names(given, Salts(call.pepper).of(str(organization_id)))


async def get_request(call: AdminCall, request_id: str) -> RequestDetail:
    """Get a request by its `x-request-id` or the response's `id`: limits, phases, attempts and cost.

    Attempts are counted from 0. A later attempt ran on another engine because the previous one had failed.
    """
    request_id = request_id_of(request_id)
    traces, events = request_traces.c, usage_events.c
    trace = await fetchrow(
        call.connection,
        select(request_traces, DECISION.label("decision")).where(
            traces.request_id == request_id, call.sees(traces.organization_id)
        ),
    )
    identity = (
        events[name] for name in ("request_id", "organization_id", "project_id", "key_id", "endpoint", "model", "tier")
    )
    rows = await fetch(
        call.connection,
        select(
            *columns_of(Attempt, usage_events, engine=call.placed(events.replica_id), pool=call.placed(events.pool)),
            *identity,
        )
        .where(events.request_id == request_id, call.sees(events.organization_id))
        .order_by(events.attempt),
    )
    if trace is None and not rows:
        raise not_found("request", request_id[:100])
    attempts = [record_of(Attempt, row) for row in rows]
    cost = sum(attempt.amount_micro for attempt in attempts if attempt.billed)
    source = trace or rows[-1]  # a trace may be lost; then use the ledger's last attempt
    found = {name: source.get(name) for name in RequestDetail.__struct_fields__}
    latency = None if trace is None else latency_of(trace, placed=call.principal.operator)
    return msgspec.convert({**found, "latency": latency, "amount_micro": cost, "attempts": attempts}, RequestDetail)


class Placements(msgspec.Struct, frozen=True, kw_only=True):
    """The router's records of one request. They are empty if the request is too old, was refused before its placement,
    or is not in the sampled share (`router.explain_records`, `router.explain_share`)."""

    request_id: str
    data: list[Placement]


async def get_placements(call: AdminCall, request_id: str) -> Placements:
    """Explain a request's placement: what the router knew about each engine, and its choice."""
    request_id = request_id_of(request_id)
    return Placements(request_id=request_id, data=await call.router.placements(request_id))


def latency_of(trace: Mapping[str, Any], *, placed: bool) -> Latency | None:
    """The latency in a row of `gateway.request_traces`; None if the row's release measured nothing. placed: include the
    engine, which tenants do not see."""
    if trace["attempts"] is None:
        return None
    prompt_tokens = trace["prompt_tokens"]
    length = None if prompt_tokens is None else length_class(prompt_tokens).value
    hidden = {} if placed else dict.fromkeys(_PLACE)
    return msgspec.convert({**trace, **hidden, "length": length}, Latency)
