"""Reads the events of background responses for streams, as the worker stores them in PostgreSQL.

Any gateway can stream any response. One watcher per gateway checks for new events of all its streams at once, and a
stream that lags reads further events itself.

The events of a run are numbered without gaps. If a run is lost, its events are deleted, and the next run's numbers
begin above them with a gap. So a gap shows that the next events do not continue the client's text.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from contracts.background_task import BackgroundTask
from contracts.errors import RateLimited, SlipstreamError
from gateway.responses.bounds import UNFINISHED
from gateway.responses.reached import StorePool
from gateway.serving.body_room import BodyRoom

MAX_EACH, MAX = 100, 1_000
"""Limits of streams of one organization, and of all, at this gateway."""
LOOK_S = 0.25
"""Interval between two checks for new events."""
WAIT_S = 2.0
"""Time after which a stream without news checks whether it must end."""
MAX_ROWS, LOOK_BYTES = 16, 128 * 1024
"""Limits of rows of one stream that are read at once, and of their bytes, which each of 1,000 streams may hold."""
HELD_BYTES = 32 * 1024 * 1024
"""Limit of events beyond `LOOK_BYTES` that streams of one organization hold. A single row may exceed it."""
HELD_WAIT_S = 15.0
"""Longest wait for room for them."""
LOOK = f"""
SELECT asked.number, response.status, response.id IS NOT NULL AS known, response.size_bytes AS stored_bytes,
       chunk.first, chunk.next, chunk.size_bytes, chunk.events,
       (SELECT max(next) FROM gateway.response_events WHERE response_id = asked.id) AS following
  FROM unnest($1::text[], $2::integer[]) WITH ORDINALITY AS asked (id, after, number)
  LEFT JOIN gateway.responses AS response USING (id)
  LEFT JOIN LATERAL (
        SELECT first, next, size_bytes, CASE WHEN size_bytes <= {LOOK_BYTES} THEN events END AS events
          FROM (SELECT first, next, events, length(events) AS size_bytes,
                       sum(length(events)) OVER (ORDER BY first) AS total_bytes
                  FROM gateway.response_events WHERE response_id = asked.id AND next > asked.after + 1
                 ORDER BY first LIMIT {MAX_ROWS}) AS following
         WHERE total_bytes <= {LOOK_BYTES} OR total_bytes = size_bytes) AS chunk ON true
 ORDER BY asked.number, chunk.first
"""  # noqa: S608
READ = "SELECT events FROM gateway.response_events WHERE response_id = $1 AND first = $2"


class Row(msgspec.Struct, frozen=True):
    """Stored events. first, next: the number of the first, and the number after the last. events: None if they are long
    and must be read separately."""

    first: int
    next: int
    size_bytes: int
    events: bytes | None


class Found(msgspec.Struct, frozen=True):
    """A stream's response at one moment. stored_bytes: the response's size. following: the number after the last stored
    event; None if no event is stored."""

    status: str | None
    known: bool
    stored_bytes: int
    following: int | None
    rows: list[Row]

    @property
    def news(self) -> bool:
        return bool(self.rows) or self.status not in UNFINISHED


NO_NEWS = Found(UNFINISHED[0], known=True, stored_bytes=0, following=None, rows=[])


class EventStreams:
    """The streams of one gateway process."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool
        self._room = BodyRoom(HELD_BYTES)
        self._open: Counter[str] = Counter()
        self._waiting: dict[asyncio.Future[Found], tuple[str, int]] = {}
        """The response of each stream that has all of its events, and the number of the last."""
        self._task = BackgroundTask("streams of responses", self._watch)

    async def stop(self) -> None:
        """Stop watching. Idempotent."""
        await self._task.stop()

    def require_room(self, organization_id: str) -> None:
        """Raises RateLimited if the organization, or this gateway, has reached its limit of streams."""
        own = self._open[organization_id]
        if own >= MAX_EACH or self._open.total() >= MAX:
            holder = f"Your organization has {own}" if own >= MAX_EACH else f"This gateway has {MAX}"
            raise RateLimited(
                f"{holder} open streams of background responses, which is the limit. Close one, or omit 'stream' and "
                "retrieve the response every few seconds.",
                retry_after_s=30,
            )

    @contextlib.contextmanager
    def counted(self, organization_id: str) -> Iterator[None]:
        """Count an open stream during the block. Raises RateLimited."""
        self.require_room(organization_id)  # again, because others may have been opened meanwhile
        self._open[organization_id] += 1
        try:
            yield
        finally:
            self._open[organization_id] -= 1
            if not self._open[organization_id]:
                del self._open[organization_id]

    @contextlib.asynccontextmanager
    async def held(self, organization_id: str, size_bytes: int) -> AsyncIterator[None]:
        """Hold this many bytes of events during the block, in the organization's turn. Raises RateLimited."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(HELD_WAIT_S):
                    await stack.enter_async_context(self._room.of(organization_id, size_bytes))
            except TimeoutError:
                raise RateLimited(
                    f"Your organization's clients have more than {HELD_BYTES} bytes of unread events, which is the "
                    "limit. Read or close those streams, then request this one again with 'starting_after'.",
                    retry_after_s=30,
                ) from None
            yield

    async def read(self, organization_id: str, response_id: str, first: int) -> bytes | None:
        """The events of a row; None if they are no longer stored. Raises ResponsesUnavailable."""
        async with self._pool.reached(organization_id) as connection:
            events: bytes | None = await connection.fetchval(READ, response_id, first)
            return events

    async def next(self, response_id: str, after: int) -> Found:
        """Wait for news of the response; returns `NO_NEWS` after `WAIT_S`. Raises ResponsesUnavailable."""
        reply: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._waiting[reply] = response_id, after
        self._task.start()
        try:
            await asyncio.wait([reply], timeout=WAIT_S)
            return reply.result() if reply.done() else NO_NEWS
        finally:
            del self._waiting[reply]

    async def _watch(self) -> None:
        while self._waiting:
            await asyncio.sleep(LOOK_S)
            waiting = dict(self._waiting)
            try:
                found = await self.look([*waiting.values()])
            except SlipstreamError as error:
                for reply in waiting:
                    if reply in self._waiting:
                        reply.set_exception(error)
                continue
            for reply, each in zip(waiting, found, strict=True):
                if each.news and reply in self._waiting:
                    reply.set_result(each)

    async def look(self, asked: Sequence[tuple[str, int]], organization_id: str = "") -> list[Found]:
        """Read responses and their next events, at one moment. asked: ids, and numbers of last events. organization_id:
        empty for several. Raises ResponsesUnavailable."""
        found: list[Found] = []
        async with self._pool.reached(organization_id) as connection:
            rows = await connection.fetch(LOOK, [id for id, _ in asked], [after for _, after in asked])
        for row in rows:
            if row["number"] > len(found):
                found.append(Found(row["status"], row["known"], row["stored_bytes"] or 0, row["following"], []))
            if row["first"] is not None:
                found[-1].rows.append(Row(row["first"], row["next"], row["size_bytes"], row["events"]))
        return found
