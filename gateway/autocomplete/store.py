"""Keeps what editors report, in batches and a little later: nothing of it is on the way of a token.

Best effort, like the traces (gateway/serving/trace.py): while the database is away the oldest reports are dropped and
counted.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice

import asyncpg

from contracts.background_task import BackgroundTask
from gateway.autocomplete.event import Event, EventKey
from gateway.db.engine import FAILURES, borrow
from gateway.observability.metrics import GatewayMetrics

logger = logging.getLogger(__name__)

MAX_WAITING = 20_000
BATCH = 1_000
WRITE_TIMEOUT_S = 5.0
"""A database that hangs must not hold up the process's stop."""
INSERT = """
    INSERT INTO gateway.completion_events AS stored
        (request_id, project_id, choice_index, view_id, type, organization_id, characters, elapsed_ms)
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::smallint[], $4::text[], $5::text[], $6::uuid[], $7::integer[],
         $8::integer[])
    ON CONFLICT (request_id, project_id, choice_index, view_id, type) DO UPDATE
       SET characters = greatest(stored.characters, excluded.characters),
           elapsed_ms = greatest(stored.elapsed_ms, excluded.elapsed_ms),
           recorded_at = excluded.recorded_at -- its hour is added up again
     WHERE (stored.characters, stored.elapsed_ms) IS DISTINCT FROM
           (greatest(stored.characters, excluded.characters), greatest(stored.elapsed_ms, excluded.elapsed_ms))
"""


class EventStore:
    """A bounded buffer in front of `gateway.completion_events`. One per gateway process."""

    def __init__(self, pool: asyncpg.Pool, metrics: GatewayMetrics, flush_s: float) -> None:
        self._pool = pool
        self._metrics = metrics
        self._waiting: dict[EventKey, Event] = {}
        """In order of arrival; each stays until it is written."""
        self._behind = False
        """The last batch was not taken, and that was said."""
        self._task = BackgroundTask.every(flush_s, self.flush, "completion events")

    def start(self) -> None:
        """Begin writing on the running loop."""
        self._task.start()

    async def stop(self) -> None:
        """Write what is left and end."""
        await self._task.stop()
        await self.flush()

    def add(self, key: EventKey, event: Event) -> None:
        """Remember a report; one that was made before is made once."""
        known = self._waiting.get(key)
        if known is None and len(self._waiting) >= MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
            self._metrics.autocomplete_events_dropped.inc()
        self._waiting[key] = event if known is None else known.and_then(event)
        self._metrics.autocomplete_event(key.type)

    async def flush(self) -> None:
        """Write what waits. Raises nothing of the database's: it is tried again with the next batch."""
        while self._waiting:
            # sorted: two gateways that write the same rows lock them in the same order
            batch = sorted(islice(self._waiting.items(), BATCH))
            columns = zip(*((*key, *event) for key, event in batch), strict=True)
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S), borrow(self._pool) as connection:
                    await connection.execute(INSERT, *(list(column) for column in columns))
            except FAILURES as failure:
                if not self._behind:
                    logger.warning("completion events wait for the database: %s", failure)
                self._behind = True
                return
            self._behind = False
            for key, event in batch:
                if self._waiting.get(key) is event:  # else more was told while this was written
                    del self._waiting[key]
