"""The stream of a stored response, from its first event or after one that its client has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from contracts.errors import SlipstreamError
from contracts.generation import Caller
from gateway.http.client_connection import ClientConnection
from gateway.http.disconnect import ClientGone, ClientWatch
from gateway.responses.bounds import UNFINISHED
from gateway.responses.event_streams import MOST_ROWS, EventStreams
from gateway.responses.store import ResponseStore
from gateway.wire.format import COMMENT
from gateway.wire.responses.events import error_of, events_after, replayed

BEAT_S = 15.0
"""Longest silence on a connection."""
LONGEST_S = 3_600.0
"""The key is checked when a stream begins: it must begin again."""
INTERRUPTED = (
    "This stream ends, and its response continues: retrieve it with 'stream' and with the number of the last event as "
    "'starting_after'."
)
LOST = (
    "The events after this number are not stored: the run was lost and the response runs again, or its events were "
    "more than a stream may have, or were deleted after its end. Retrieve the response, or stream it without "
    "'starting_after'."
)


class _Ended(Exception):
    """Why a stream ends before its response. It is sent as an event, so it has no status."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


async def streamed(
    streams: EventStreams,
    store: ResponseStore,
    caller: Caller,
    response_id: str,
    after: int | None,
    leaving: Callable[[], bool],
) -> AsyncGenerator[bytes, None]:
    """Events after this number, until the response has finished, as bytes to send; comments while there are none.

    The caller may read the response. after: None: from the first. leaving: whether this gateway stops. Raises nothing:
    if a stream ends before its response, its last event is an error.
    """
    position = -1 if after is None else after
    with streams.counted(caller.organization_id):
        try:
            async for at, data in _events(streams, response_id, position, leaving):
                position = at
                yield data
            if position == -1:  # it has no events
                yield b"".join(replayed((await store.get(caller, response_id)).response))
        except (_Ended, SlipstreamError) as error:
            # the number of the last event, so that a client that resumes after it misses none
            yield error_of(error.code, error.message, max(position, 0))


async def send(connection: ClientConnection, events: AsyncGenerator[bytes, None]) -> None:
    """Send these events in an answer that was started, until they end or the client leaves or reads nothing."""
    with contextlib.suppress(ClientGone):
        async with ClientWatch(connection), contextlib.aclosing(events):
            with contextlib.suppress(TimeoutError):
                async for data in events:
                    connection.write(data)
                    async with asyncio.timeout(BEAT_S):
                        await connection.drained()
            connection.end(b"")


async def _events(
    streams: EventStreams, response_id: str, position: int, leaving: Callable[[], bool]
) -> AsyncIterator[tuple[int, bytes]]:
    """Events or comments, with the number of the last event. Raises _Ended, and ResponsesUnavailable."""
    now_s = asyncio.get_running_loop().time
    end_s, beat_s = now_s() + LONGEST_S, now_s() + BEAT_S
    [found] = await streams.look([(response_id, position)])
    while found.rows or found.status in UNFINISHED:
        if leaving() or now_s() > end_s:
            raise _Ended("stream_interrupted", INTERRUPTED)
        for first, following, events in found.rows:
            if -1 < position < first - 1:
                raise _Ended("events_lost", LOST)
            data = events_after(position, first, events)
            position, beat_s = following - 1, now_s() + BEAT_S
            yield position, data
        if now_s() > beat_s:
            beat_s = now_s() + BEAT_S
            yield position, COMMENT
        if len(found.rows) == MOST_ROWS:
            [found] = await streams.look([(response_id, position)])
        else:
            found = await streams.next(response_id, position)
    if not found.known:
        raise _Ended("response_deleted", "The response was deleted.")
    if found.status == "cancelled":
        raise _Ended("response_cancelled", "The response was cancelled.")
    if position >= 0 and not found.recorded:
        raise _Ended("events_lost", LOST)
