"""Streams a stored response from its first event, or after one that its client has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator

from contracts.errors import SlipstreamError
from contracts.generation import Caller
from gateway.http.client_connection import ClientConnection
from gateway.http.disconnect import ClientGone, ClientWatch
from gateway.responses.bounds import UNFINISHED
from gateway.responses.event_streams import EventStreams
from gateway.responses.store import ResponseStore
from gateway.wire.format import COMMENT
from gateway.wire.responses.events import error_of, events_after, replayed

BEAT_S = 15.0
"""Longest silence on a connection, interval of its key's checks, and time in which its client must read something."""
LONGEST_S = 3_600.0
"""Longest stream. Its client must then request another one."""
PIECE_BYTES = 64 * 1024
"""Size of the parts in which events are written."""
REPLAY_COPIES = 4
"""Copies of a stored response in memory while it is sent as a stream."""
INTERRUPTED = (
    "The stream ended before the response. Request it again with 'stream', and with 'starting_after' set to the number "
    "of the last event."
)
LOST = (
    "The events after this number are not available: the response is being generated again, the run had more events "
    "than a stream may have, or the events were deleted. Retrieve the response, or stream it without 'starting_after'."
)
BEYOND = (
    "The response has finished, and has no event with this number. Send the number of the last event that you have as "
    "'starting_after', or omit it."
)


class _Ended(Exception):
    """The reason why a stream ends before its response. It is sent as an event, so it has no status."""

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
    check: Callable[[], Awaitable[object]],
) -> AsyncGenerator[bytes, None]:
    """Yield events after this number until the response has finished, and comments meanwhile, as bytes to send.

    The caller must have access to the response. after: None for all. leaving: whether this gateway is stopping. check:
    raises a SlipstreamError once the key may not be used. Raises nothing: an early end is an error event.
    """
    position = -1 if after is None else after
    try:
        with streams.counted(caller.organization_id):
            async for at, data in _events(streams, store, caller, response_id, position, leaving, check):
                position = at
                yield data
    except (_Ended, SlipstreamError) as error:
        # the number of the last event, so that a client that resumes after it misses none
        yield error_of(error.code, error.message, max(position, 0))


async def send(connection: ClientConnection, events: AsyncGenerator[bytes, None]) -> None:
    """Send these events in a started answer, until they end or the client leaves. A client that reads nothing is
    disconnected, because an answer that ended would look complete."""
    connection.bound()
    with contextlib.suppress(ClientGone):
        async with ClientWatch(connection), contextlib.aclosing(events):
            try:
                async with asyncio.timeout(LONGEST_S + 2 * BEAT_S):
                    async for data in events:
                        connection.write(data)
                        await _read(connection)
            except TimeoutError:
                connection.abort()
            else:
                connection.end(b"")


async def _read(connection: ClientConnection) -> None:
    """Return when the client has read enough. Raises TimeoutError if it reads nothing for a while."""
    while connection.full:
        unread_bytes = connection.unread_bytes
        try:
            async with asyncio.timeout(BEAT_S):
                await connection.drained()
        except TimeoutError:
            if connection.unread_bytes >= unread_bytes:
                raise


async def _events(
    streams: EventStreams,
    store: ResponseStore,
    caller: Caller,
    response_id: str,
    position: int,
    leaving: Callable[[], bool],
    check: Callable[[], Awaitable[object]],
) -> AsyncIterator[tuple[int, bytes]]:
    """Yield parts of events, or comments, with the number of the last event. Raises _Ended and SlipstreamError, but
    only after complete events."""
    now_s, organization_id = asyncio.get_running_loop().time, caller.organization_id
    end_s, beat_s, check_s = now_s() + LONGEST_S, now_s() + BEAT_S, now_s() + BEAT_S
    [found] = await streams.look([(response_id, position)], organization_id)
    while found.rows or found.status in UNFINISHED:
        if leaving() or now_s() > end_s:
            raise _Ended("stream_interrupted", INTERRUPTED)
        if now_s() > check_s:
            await check()
            check_s = now_s() + BEAT_S
        for row in found.rows:
            if -1 < position < row.first - 1:
                raise _Ended("events_lost", LOST)
            async with contextlib.AsyncExitStack() as holding:
                if (events := row.events) is None:
                    await holding.enter_async_context(streams.held(organization_id, row.size_bytes))
                    events = await streams.read(organization_id, response_id, row.first)
                    if events is None:
                        raise _Ended("events_lost", LOST)
                events = events_after(position, row.first, events)
                position = row.next - 1
                for part in _pieces(events):
                    yield position, part
                del events  # long events must not stay in memory during the next wait
            beat_s = now_s() + BEAT_S
        if now_s() > beat_s:
            beat_s = now_s() + BEAT_S
            yield position, COMMENT
        if found.rows and found.following is not None and position < found.following - 1:
            [found] = await streams.look([(response_id, position)], organization_id)
        else:
            found = await streams.next(response_id, position)
    if not found.known:
        raise _Ended("response_deleted", "The response was deleted.")
    if found.status == "cancelled":
        raise _Ended("response_cancelled", "The response was cancelled.")
    if position >= 0 and found.following is None:
        raise _Ended("events_lost", LOST)
    if position >= 0 and found.following is not None and position >= found.following:
        raise _Ended("starting_after_beyond_end", BEYOND)
    if position == -1:  # the response has no events
        async with streams.held(organization_id, REPLAY_COPIES * found.stored_bytes):
            for event in replayed((await store.get(caller, response_id)).response):
                for part in _pieces(event):
                    yield position, part


def _pieces(events: bytes) -> Iterator[bytes]:
    for begin in range(0, len(events), PIECE_BYTES):
        yield events[begin : begin + PIECE_BYTES]
