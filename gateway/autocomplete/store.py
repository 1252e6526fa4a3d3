"""Stores editors' reports in batches and with a delay, so that they never delay a token.

Only reports that match a completion of their project are stored, and a limited number for each completion: a client can
invent ids, and a view may have any name. A completion's trace is written after its end, so the store waits before it
looks up a report's completion, and looks it up once more before it drops the report.

Best effort, like the traces (gateway/serving/trace.py): while the database is unavailable, the oldest reports are
dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import asyncpg

from contracts.background_task import BackgroundTask
from gateway.autocomplete.event import Event, EventKey
from gateway.observability.metrics import GatewayMetrics
from storage.engine import FAILURES, borrow

logger = logging.getLogger(__name__)

MAX_WAITING = 20_000
MAX_OF_COMPLETION = 100
"""Limit of rows for one completion. An editor reports a few for each choice and view."""
BATCH = 1_000
FIRST_LOOK_S, LAST_LOOK_S = 2.0, 10.0
"""Delays between a report and the two lookups of its completion. Traces are written every `gateway.trace_flush_s`."""
WRITE_TIMEOUT_S = 5.0
"""A database that hangs must not hold up the process's stop."""
# LIMIT makes each lookup separate, like in rollup.py.
KNOWN = f"""
SELECT number, (SELECT count(*) FROM (SELECT FROM gateway.completion_events AS event
                                       WHERE event.request_id = told.request_id COLLATE "C"
                                         AND event.project_id = told.project_id LIMIT {MAX_OF_COMPLETION}) AS rows)
  FROM unnest($1::text[], $2::uuid[], $3::uuid[]) WITH ORDINALITY
       AS told (request_id, project_id, organization_id, number)
 CROSS JOIN LATERAL (SELECT FROM gateway.request_traces AS trace
                      WHERE trace.request_id = told.request_id AND trace.organization_id = told.organization_id
                        AND trace.project_id = told.project_id LIMIT 1) AS made
"""  # noqa: S608
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


class Waiting(NamedTuple):
    """A report that is not stored yet. due_s: time of its next lookup; last: whether no lookup follows."""

    event: Event
    due_s: float
    last: bool = False


class EventStore:
    """A bounded buffer in front of `gateway.completion_events`. One per gateway process."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        metrics: GatewayMetrics,
        flush_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._metrics = metrics
        self._clock = clock
        self._waiting: dict[str, dict[EventKey, Waiting]] = {}
        """Reports by organization, in order of arrival; a report stays until it is written or dropped."""
        self._behind = False
        """Whether the last batch failed and the failure was logged."""
        self._task = BackgroundTask.every(flush_s, self.flush, "completion events")

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def start(self) -> None:
        """Begin writing on the running loop."""
        self._task.start()

    async def stop(self) -> None:
        """Write the remaining reports and end. Call it after the traces are written."""
        await self._task.stop()
        for of_organization in self._waiting.values():
            for key, waiting in of_organization.items():
                of_organization[key] = Waiting(waiting.event, 0.0, last=True)
        await self.flush()

    def add(self, key: EventKey, event: Event) -> None:
        """Queue a report; a repeated report is merged."""
        of_organization = self._waiting.setdefault(event.organization_id, {})
        known = of_organization.get(key)
        if known is None:
            of_organization[key] = Waiting(event, self._clock() + FIRST_LOOK_S)
            if len(self) > MAX_WAITING:
                self._drop_one()
        else:
            of_organization[key] = known._replace(event=known.event.and_then(event))
        self._metrics.autocomplete_event(key.type)

    async def flush(self) -> None:
        """Write the due reports. A failure of the database raises nothing: the next flush tries again."""
        while batch := self._due():
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S), borrow(self._pool) as connection:
                    joined = await self._joined(connection, batch)
                    columns = zip(*((*key, *waiting.event) for key, waiting in joined), strict=True)
                    if joined:
                        await connection.execute(INSERT, *(list(column) for column in columns))
            except FAILURES as failure:
                if not self._behind:
                    logger.warning("completion events wait for the database: %s", failure)
                self._behind = True
                return
            self._behind = False
            self._done(batch, joined)

    def _due(self) -> list[tuple[EventKey, Waiting]]:
        now_s = self._clock()
        items = (item for of_organization in self._waiting.values() for item in of_organization.items())
        # sorted: two gateways that write the same rows lock them in the same order
        return sorted(islice((item for item in items if item[1].due_s <= now_s), BATCH))

    async def _joined(
        self, connection: asyncpg.Connection, batch: list[tuple[EventKey, Waiting]]
    ) -> list[tuple[EventKey, Waiting]]:
        """Reports whose completion has a trace and fewer rows than the limit."""
        ids = [key.request_id for key, _ in batch], [key.project_id for key, _ in batch]
        organizations = [waiting.event.organization_id for _, waiting in batch]
        joined: list[tuple[EventKey, Waiting]] = []
        new: Counter[tuple[str, str]] = Counter()
        for number, stored in await connection.fetch(KNOWN, *ids, organizations):
            key, waiting = batch[number - 1]
            new[key.request_id, key.project_id] += 1
            if stored + new[key.request_id, key.project_id] <= MAX_OF_COMPLETION:
                joined.append((key, waiting))
        return sorted(joined)

    def _done(self, batch: list[tuple[EventKey, Waiting]], joined: list[tuple[EventKey, Waiting]]) -> None:
        """Forget reports that were stored or looked up for the last time."""
        stored = {key for key, _ in joined}
        for key, waiting in batch:
            of_organization = self._waiting.get(waiting.event.organization_id, {})
            if of_organization.get(key) is not waiting:  # another report was merged meanwhile, or it was dropped
                continue
            if key in stored or waiting.last:
                del of_organization[key]
                if key not in stored:
                    self._metrics.autocomplete_events_unmatched.inc()
            else:
                again_s = waiting.due_s + LAST_LOOK_S - FIRST_LOOK_S
                of_organization[key] = Waiting(waiting.event, again_s, last=True)
            if not of_organization:
                del self._waiting[waiting.event.organization_id]

    def _drop_one(self) -> None:
        """Drop the oldest report of the organization with the most reports."""
        largest = max(self._waiting.values(), key=len)
        del largest[next(iter(largest))]
        self._metrics.autocomplete_events_dropped.inc()
