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

from gateway.answer import Answer
from gateway.call import Call
from gateway.metrics import GatewayMetrics

logger = logging.getLogger(__name__)

MAX_WAITING = 20_000
BATCH = 1_000
INSERT = """
    INSERT INTO gateway.request_traces
        (request_id, organization_id, client_request_id, status, error_code, total_ms, phases_ms)
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::smallint[], $5::text[], $6::float8[], $7::jsonb[])
    ON CONFLICT DO NOTHING
"""


class Trace(msgspec.Struct, frozen=True):
    """One request's row."""

    request_id: str
    organization_id: str
    client_request_id: str | None
    status: int
    error_code: str | None
    total_ms: float
    phases_ms: str


class Traces:
    """A bounded queue in front of `gateway.request_traces`."""

    def __init__(self, pool: asyncpg.Pool, metrics: GatewayMetrics, flush_s: float) -> None:
        self._pool = pool
        self._metrics = metrics
        self._flush_s = flush_s
        self._waiting: deque[Trace] = deque()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin writing on the running loop."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Write what is left and end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._flush()

    def add(self, call: Call, answer: Answer) -> None:
        """Remember one finished request."""
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._metrics.traces_dropped.inc()
        self._waiting.append(
            Trace(
                call.request_id,
                call.key.caller.organization_id,
                call.client_request_id,
                answer.status or 499,
                answer.error_code,
                round(call.clock.total_s * 1e3, 3),
                msgspec.json.encode(call.clock.as_ms()).decode(),
            )
        )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._flush_s)
            await self._flush()

    async def _flush(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            rows = list(zip(*(msgspec.structs.astuple(trace) for trace in batch), strict=True))
            try:
                await self._pool.execute(INSERT, *rows)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                logger.warning("%d phase records wait for the database: %s", len(batch), error)
                self._waiting.extendleft(reversed(batch))
                return
