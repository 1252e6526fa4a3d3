"""Streams of responses in the background: their events, as the worker stores them in PostgreSQL.

The gateway that has the client need not be the one that runs the response. One watcher per gateway looks for new events
of all its streams at once; a stream that is behind reads on by itself.

The events of a run are numbered without gaps. When a run was lost, its events are deleted, and the next run's numbers
begin above them with a gap. So a gap shows that the text that a client has is not the text that comes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import asyncpg
import msgspec

from contracts.background_task import BackgroundTask
from contracts.errors import RateLimited, SlipstreamError
from gateway.responses.bounds import UNFINISHED
from gateway.responses.reached import reached

MOST_EACH, MOST = 100, 1_000
"""Streams of one organization, and of all, at this gateway."""
LOOK_S = 0.25
"""Between two looks for new events."""
WAIT_S = 2.0
"""Time after which a stream without news looks whether it is to end."""
MOST_ROWS = 16
"""Rows of one stream that are read at once: about so many quarters of a second of its run."""
LOOK = f"""
SELECT asked.number, response.status, response.id IS NOT NULL AS known, chunk.first, chunk.next, chunk.events,
       EXISTS (SELECT FROM gateway.response_events WHERE response_id = asked.id) AS recorded
  FROM unnest($1::text[], $2::integer[]) WITH ORDINALITY AS asked (id, after, number)
  LEFT JOIN gateway.responses AS response USING (id)
  LEFT JOIN LATERAL (
        SELECT first, next, events FROM gateway.response_events
         WHERE response_id = asked.id AND next > asked.after + 1 ORDER BY first LIMIT {MOST_ROWS}) AS chunk ON true
 ORDER BY asked.number, chunk.first
"""  # noqa: S608


class Found(msgspec.Struct, frozen=True):
    """A stream's response at one moment. rows: first number, number after the last, events."""

    status: str | None
    known: bool
    recorded: bool
    rows: list[tuple[int, int, bytes]]

    @property
    def news(self) -> bool:
        return bool(self.rows) or self.status not in UNFINISHED


NO_NEWS = Found(UNFINISHED[0], known=True, recorded=True, rows=[])


class EventStreams:
    """One per gateway process."""

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool
        self._open: Counter[str] = Counter()
        self._waiting: dict[asyncio.Future[Found], tuple[str, int]] = {}
        """The response of each stream that has all of its events, and the number of the last."""
        self._task = BackgroundTask("streams of responses", self._watch)

    async def stop(self) -> None:
        """Look no more. Idempotent."""
        await self._task.stop()

    def require_room(self, organization_id: str) -> None:
        """Raises RateLimited while the organization, or this gateway, has as many streams as it may."""
        own = self._open[organization_id]
        if own >= MOST_EACH or self._open.total() >= MOST:
            whose = f"Your organization has {own}" if own >= MOST_EACH else f"This gateway has {MOST}"
            raise RateLimited(
                f"{whose} streams of responses in the background open, which is the limit. Close one, or leave "
                "'stream' out and retrieve the response every few seconds.",
                retry_after_s=30,
            )

    @contextlib.contextmanager
    def counted(self, organization_id: str) -> Iterator[None]:
        """A stream is open meanwhile."""
        self._open[organization_id] += 1
        try:
            yield
        finally:
            self._open[organization_id] -= 1
            if not self._open[organization_id]:
                del self._open[organization_id]

    async def next(self, response_id: str, after: int) -> Found:
        """The response once it has news, or no news after a while. Raises ResponsesUnavailable."""
        told: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._waiting[told] = response_id, after
        self._task.start()
        try:
            await asyncio.wait([told], timeout=WAIT_S)
            return told.result() if told.done() else NO_NEWS
        finally:
            del self._waiting[told]

    async def _watch(self) -> None:
        while self._waiting:
            await asyncio.sleep(LOOK_S)
            asked = dict(self._waiting)
            try:
                found = await self.look([*asked.values()])
            except SlipstreamError as error:
                for told in asked:
                    if told in self._waiting:
                        told.set_exception(error)
                continue
            for told, each in zip(asked, found, strict=True):
                if each.news and told in self._waiting:
                    told.set_result(each)

    async def look(self, asked: Sequence[tuple[str, int]]) -> list[Found]:
        """Each one's response and its next events, of one moment. Raises ResponsesUnavailable."""
        found: list[Found] = []
        async with reached(self._pool) as connection:
            rows = await connection.fetch(LOOK, [id for id, _ in asked], [after for _, after in asked])
        for row in rows:
            if row["number"] > len(found):
                found.append(Found(row["status"], row["known"], row["recorded"], []))
            if row["first"] is not None:
                found[-1].rows.append((row["first"], row["next"], row["events"]))
        return found
