"""Keeps where each request's time went, by request id, so that "why was this slow?" has an answer tomorrow.

Best effort, unlike the ledger: batches go to PostgreSQL a little later, and when the database is away for long the
oldest are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

import asyncpg
import msgspec

from contracts.background_task import BackgroundTask
from contracts.errors import (
    AuthError,
    BodyTooLarge,
    ContextTooLong,
    LimitError,
    ModelForbidden,
    ModelNotFound,
    ServiceError,
    SlipstreamError,
    WrongEndpoint,
)
from contracts.generation import Caller, TextPrompt
from gateway.db.engine import FAILURES, borrow
from gateway.http.response import ResponseWriter
from gateway.limits.counter_snapshot import counters_of
from gateway.limits.refusal import CounterReached
from gateway.observability.measurement import Measurement
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.request import Arrival, InferenceRequest

logger = logging.getLogger(__name__)

MAX_WAITING = 20_000
MAX_REFUSALS_WAITING = 5_000
"""A flood of refusals must not push out the records of requests that were served."""
BATCH = 1_000
WRITE_TIMEOUT_S = 5.0
"""A database that hangs must not hold up the process's stop."""
TOLD = (AuthError, LimitError, ServiceError, ModelNotFound, ModelForbidden, WrongEndpoint, ContextTooLong, BodyTooLarge)
"""Errors whose sentence is kept. Others may repeat what the client wrote; of them only the field's name is."""
REASON_CHARACTERS = 500


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


_COLUMNS = ", ".join(Row.__struct_fields__)
# One JSON text: of every element of an array parameter asyncpg asks whether it is an array itself.
INSERT = f"""
    INSERT INTO gateway.request_traces ({_COLUMNS})
    SELECT {_COLUMNS} FROM json_populate_recordset(NULL::gateway.request_traces, $1::json)
        ON CONFLICT DO NOTHING
"""  # noqa: S608
_encode = msgspec.json.Encoder().encode


class Traces:
    """Two bounded queues in front of `gateway.request_traces`: requests that ran, and requests that were refused."""

    def __init__(self, pool: asyncpg.Pool, metrics: GatewayMetrics, flush_s: float) -> None:
        self._pool = pool
        self._metrics = metrics
        self._served: deque[Row] = deque()
        self._refused: deque[Row] = deque()
        self._behind = False
        """The last batch was not taken, and that was said."""
        self._task = BackgroundTask.every(flush_s, self._flush, "traces")

    def start(self) -> None:
        """Begin writing on the running loop."""
        self._task.start()

    async def stop(self) -> None:
        """Write what is left and end."""
        await self._task.stop()
        await self._flush()

    def add(self, request: InferenceRequest, response: ResponseWriter) -> None:
        """Remember one request that was prepared, whether it was served or refused by a limit."""
        # Taken away: its traceback holds the response, a cycle that would wait for the collector.
        error, response.error = response.error, None
        row = _row(request, request.caller, response.status or 499, response.error_code, error)
        if isinstance(error, LimitError):
            self._put(self._refused, MAX_REFUSALS_WAITING, row)
        else:
            self._put(self._served, MAX_WAITING, row)

    def refused(self, arrival: Arrival, caller: Caller, status: int, error: SlipstreamError) -> None:
        """Remember a request of a known caller that was refused before it was prepared."""
        self._put(self._refused, MAX_REFUSALS_WAITING, _row(arrival, caller, status, error.code, error))

    def _put(self, queue: deque[Row], most: int, row: Row) -> None:
        if len(queue) >= most:
            queue.popleft()
            self._metrics.traces_dropped.inc()
        queue.append(row)

    async def _flush(self) -> None:
        for queue in (self._served, self._refused):
            while queue:
                batch = [queue.popleft() for _ in range(min(BATCH, len(queue)))]
                try:
                    async with asyncio.timeout(WRITE_TIMEOUT_S), borrow(self._pool) as connection:
                        await connection.execute(INSERT, _encode(batch).decode())
                except FAILURES as failure:
                    if not self._behind:
                        logger.warning("phase records wait for the database: %s", failure)
                    self._behind = True
                    queue.extendleft(reversed(batch))
                    return
                self._behind = False


def _row(
    request: Arrival | InferenceRequest,
    caller: Caller,
    status: int,
    error_code: str | None,
    error: SlipstreamError | None,
) -> Row:
    rule = error.limit if isinstance(error, LimitError) else None
    model = request.model
    language, characters, served_from, measurement = None, None, None, Measurement()
    if isinstance(request, InferenceRequest):
        language, characters = request.prepared.language, _characters(request)
        served_from, measurement = request.served_from, request.measurement
    return Row(
        request_id=request.request_id,
        organization_id=caller.organization_id,
        project_id=caller.project_id,
        key_id=caller.key_id,
        client_request_id=request.client_request_id,
        endpoint=request.endpoint,
        model=model if model is None else model.replace("\0", ""),
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
        **msgspec.structs.asdict(measurement),
    )


def _characters(request: InferenceRequest) -> int | None:
    """Of a completion. An echoed prompt is none of it."""
    prompt = request.generation.prompt
    return None if isinstance(prompt, TextPrompt) and prompt.echo else request.characters


def _reason_of(request: Arrival | InferenceRequest, error: SlipstreamError | None) -> str | None:
    if error is not None:
        return _reason(error)
    newer = request.superseded_by if isinstance(request, InferenceRequest) else None
    return None if newer is None else f"by {newer}"


def _reason(error: SlipstreamError) -> str | None:
    if isinstance(error, TOLD):
        return error.message.replace("\0", "")[:REASON_CHARACTERS]
    return None if error.param is None else f"param: {error.param}".replace("\0", "")[:REASON_CHARACTERS]
