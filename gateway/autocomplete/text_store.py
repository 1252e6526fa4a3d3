"""Keeps what was asked and answered at a gap, for organizations that have asked for it (`store_prompts`); of others
nothing.

Best effort, in batches and a little later, like the editors' reports. Whether the organization still wants it is asked
once more by the statement that writes: of one that has turned it off meanwhile nothing is stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import NamedTuple

import asyncpg

from contracts.background_task import BackgroundTask
from contracts.generation import Caller
from gateway.db.engine import FAILURES, borrow
from gateway.observability.metrics import GatewayMetrics
from gateway.wire.gap import Gap

logger = logging.getLogger(__name__)

MAX_WAITING = 2_000
BATCH = 200
MOST_CHARACTERS = 2_000
"""Of each text: of a prefix the last, of a suffix and a completion the first."""
WRITE_TIMEOUT_S = 5.0
"""A database that hangs must not hold up the process's stop."""
INSERT = """
    WITH wanted AS (
        SELECT id FROM gateway.organizations WHERE id = ANY ($3::uuid[]) AND store_prompts ORDER BY id FOR SHARE)
    INSERT INTO gateway.completion_texts (request_id, project_id, organization_id, prefix, suffix, completion)
    SELECT asked.* FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[])
                     AS asked (request_id, project_id, organization_id, prefix, suffix, completion)
      JOIN wanted ON wanted.id = asked.organization_id
        ON CONFLICT DO NOTHING
"""


class Texts(NamedTuple):
    """A row of `gateway.completion_texts`."""

    request_id: str
    project_id: str
    organization_id: str
    prefix: str
    suffix: str
    completion: str | None


class TextStore:
    """A bounded buffer in front of `gateway.completion_texts`. One per gateway process."""

    def __init__(self, pool: asyncpg.Pool, metrics: GatewayMetrics, flush_s: float) -> None:
        self._pool = pool
        self._metrics = metrics
        self._waiting: deque[Texts] = deque()
        self._behind = False
        """The last batch was not taken, and that was said."""
        self._task = BackgroundTask.every(flush_s, self.flush, "completion texts")

    def start(self) -> None:
        """Begin writing on the running loop."""
        self._task.start()

    async def stop(self) -> None:
        """Write what is left and end."""
        await self._task.stop()
        await self.flush()

    def add(self, request_id: str, caller: Caller, gap: Gap, completion: str | None) -> None:
        """Remember a gap that was answered, of an organization that wants it. completion: None where the answer was
        passed on unread."""
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._metrics.completion_texts_dropped.inc()
        texts = _stored(gap.prefix[-MOST_CHARACTERS:]), _stored(gap.suffix[:MOST_CHARACTERS])
        answer = None if completion is None else _stored(completion[:MOST_CHARACTERS])
        self._waiting.append(Texts(request_id, caller.project_id, caller.organization_id, *texts, answer))

    async def flush(self) -> None:
        """Write what waits. Raises nothing of the database's: it is tried again with the next batch."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S), borrow(self._pool) as connection:
                    await connection.execute(INSERT, *(list(column) for column in zip(*batch, strict=True)))
            except FAILURES as failure:
                if not self._behind:
                    logger.warning("texts of completions wait for the database: %s", failure)
                self._behind = True
                self._waiting.extendleft(reversed(batch))
                return
            self._behind = False


def _stored(text: str) -> str:
    """As PostgreSQL takes it: no NUL, and no half of a surrogate pair: one text must not lose its whole batch."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
