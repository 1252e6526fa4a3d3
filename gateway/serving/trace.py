"""Stores how each request spent its time, by request id, so that a slow request can be explained later.

Traces are best effort, unlike the ledger. They go to PostgreSQL in batches a little later, and if the database is
unreachable for long, the oldest are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import msgspec

from contracts.errors import (
    AuthError,
    BodyTooLarge,
    ContextTooLong,
    LimitError,
    ModelForbidden,
    ModelNotFound,
    Overloaded,
    ServiceError,
    SlipstreamError,
    WrongEndpoint,
)
from contracts.generation import Caller, TextPrompt
from contracts.printable import printable
from contracts.service_class import class_name
from gateway.http.response import ResponseWriter
from gateway.limits.counter_snapshot import counters_of
from gateway.limits.refusal import CounterReached
from gateway.observability.measurement import Measurement
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.observers import RequestObserver
from gateway.serving.request import Arrival, InferenceRequest
from storage.write_behind import WriteBehind, WrittenBehind

MAX_WAITING = 20_000
MAX_REFUSALS_WAITING = 5_000
"""A flood of refusals must not push out the records of served requests."""
BATCH = 1_000
SHOWN_ERRORS = (
    AuthError,
    LimitError,
    ServiceError,
    ModelNotFound,
    ModelForbidden,
    WrongEndpoint,
    ContextTooLong,
    BodyTooLarge,
)
"""Errors whose message is stored. Other messages may repeat the client's text, so only the field's name is stored."""
REASON_CHARACTERS = 500
NO_SESSION = (None, None, None)


class Row(Measurement, frozen=True, kw_only=True, gc=False):
    """One request, by the columns of `gateway.request_traces`."""

    request_id: str
    organization_id: str
    project_id: str
    key_id: str
    client_request_id: str | None
    endpoint: str
    model: str | None
    tier: str | None
    status: int
    error_code: str | None
    reason: str | None
    rule: object
    counters: object
    total_ms: float
    phases_ms: dict[str, float]
    client: str
    language: str | None
    characters: int | None
    served_from: str | None
    trace_id: str | None
    over_share: bool | None
    service_class: str | None
    session: str | None
    session_agent: str | None
    session_parent: str | None


_COLUMNS = ", ".join(Row.__struct_fields__)
# One JSON text, because asyncpg checks for every element of an array parameter whether it is an array itself.
INSERT = f"""
    INSERT INTO gateway.request_traces ({_COLUMNS})
    SELECT {_COLUMNS} FROM json_populate_recordset(NULL::gateway.request_traces, $1::json)
        ON CONFLICT DO NOTHING
"""  # noqa: S608
_encode = msgspec.json.Encoder().encode


class Traces(WrittenBehind, RequestObserver):
    """Two bounded queues in front of `gateway.request_traces`: requests that ran, and requests that were refused."""

    def __init__(self, pool: asyncpg.Pool, metrics: GatewayMetrics, flush_s: float) -> None:
        dropped = metrics.traces_dropped.inc
        self._served = WriteBehind(pool, _write, "traces", most=MAX_WAITING, batch=BATCH, on_dropped=dropped)
        self._refused = WriteBehind(
            pool, _write, "traces of refusals", most=MAX_REFUSALS_WAITING, batch=BATCH, on_dropped=dropped
        )
        super().__init__(flush_s, "traces")

    def ended(self, request: InferenceRequest, response: ResponseWriter) -> None:
        """Record a customer's prepared request, whether it was served or refused by a limit."""
        if request.purpose is not None:
            return
        error = response.error
        row = _row(request, request.caller, response.status or 499, response.error_code, error)
        (self._refused if isinstance(error, LimitError | Overloaded) else self._served).add(row)

    def refused(self, arrival: Arrival, caller: Caller, status: int, error: SlipstreamError) -> None:
        """Record a request of a known caller that was refused before it was prepared."""
        self._refused.add(_row(arrival, caller, status, error.code, error))

    async def flush(self) -> None:
        await self._served.flush()
        if not self._served:  # else the database is unreachable, and would delay a stop again
            await self._refused.flush()


async def _write(connection: asyncpg.Connection, rows: Sequence[Row]) -> None:
    await connection.execute(INSERT, _encode(rows).decode())


def _row(
    request: Arrival | InferenceRequest,
    caller: Caller,
    status: int,
    error_code: str | None,
    error: SlipstreamError | None,
) -> Row:
    rule = error.limit if isinstance(error, LimitError) else None
    model = request.model
    session, agent, parent = request.session or NO_SESSION
    language, characters, served_from, measurement, service_class = None, None, None, Measurement(), None
    if isinstance(request, InferenceRequest):
        service_class = class_name(request.generation.priority)
        language, characters = request.prepared.language, _characters(request)
        served_from, measurement = request.served_from, request.measurement
    return Row(
        request_id=request.request_id,
        organization_id=caller.organization_id,
        project_id=caller.project_id,
        key_id=caller.key_id,
        client_request_id=request.client_request_id,
        endpoint=request.endpoint,
        model=None if model is None else printable(model),
        tier=request.tier,
        status=status,
        error_code=error_code,
        reason=_reason_of(request, error),
        rule=rule,
        counters=counters_of(error.state) if isinstance(error, CounterReached) else None,
        total_ms=round(request.clock.total_s * 1e3, 3),
        phases_ms=request.clock.as_ms(),
        client=request.client,
        language=language,
        characters=characters,
        served_from=served_from,
        trace_id=request.trace_id,
        over_share=error.over_share if isinstance(error, Overloaded) else None,
        service_class=service_class,
        session=session,
        session_agent=agent,
        session_parent=parent,
        **msgspec.structs.asdict(measurement),
    )


def _characters(request: InferenceRequest) -> int | None:
    """Characters of a completion, without an echoed prompt."""
    prompt = request.generation.prompt
    return None if isinstance(prompt, TextPrompt) and prompt.echo else request.characters


def _reason_of(request: Arrival | InferenceRequest, error: SlipstreamError | None) -> str | None:
    if error is not None:
        return _reason(error)
    newer = request.superseded_by if isinstance(request, InferenceRequest) else None
    return None if newer is None else f"by {newer}"


def _reason(error: SlipstreamError) -> str | None:
    if isinstance(error, SHOWN_ERRORS):
        return printable(error.message)[:REASON_CHARACTERS]
    return None if error.param is None else printable(f"param: {error.param}")[:REASON_CHARACTERS]
