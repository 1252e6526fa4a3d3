"""Reads the stream of a response that the worker runs, and stores its events for clients that stream it.

It does not store the stream's end: a run that failed may be repeated, and a response ends together with its bill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import StreamReader

from control.deferred.gateway_client import NoAnswer, StreamEnd
from control.deferred.leases import LeaseLost
from gateway.metering.journal.records import LINE_CLOSED
from gateway.responses.background import FIRST_EVENTS
from gateway.wire.responses.events import BLANK, Event, event_of, read
from gateway.wire.responses.stored import with_fields

STORED_EVERY_S = 0.25
MAX_BYTES = 16 * 1024 * 1024
"""Limit of one run's stored events. Clients that stream more are referred to the response."""
RECORD = b": %b " % LINE_CLOSED

Store = Callable[[int, int, bytes], Awaitable[None]]


class _Error(msgspec.Struct):
    """An error, whose `type` is this deployment's code."""

    message: str
    type: str
    param: str | None = None


class _Failed(msgspec.Struct):
    error: _Error


_decode_failed = msgspec.json.Decoder(_Failed).decode


class Recorder:
    """Records one run. store: stores events, with the number of the first and the number after the last. first: number
    of the run's first event. created_at: the response's. complete: set when the run's record has arrived, so that
    the run must be billed."""

    def __init__(self, store: Store, first: int, created_at: int, complete: asyncio.Event) -> None:
        self._store = store
        self._begun = first == len(FIRST_EVENTS)
        """Whether clients have received `response.created`."""
        self._first = self._next = first
        self._created_at = created_at
        self._complete = complete
        self._events: list[bytes] = []
        self._size_bytes = 0
        self._record = b""
        self._end: tuple[int, bytes] | None = None

    @property
    def full(self) -> bool:
        """Whether events are missing."""
        return self._size_bytes > MAX_BYTES

    async def read(self, content: StreamReader) -> StreamEnd:
        """Store all events before the last one, a few times a second. Raises NoAnswer and the errors of `store`."""
        clock = asyncio.get_running_loop().time
        unread, due_s = b"", clock()
        while True:
            try:
                async with asyncio.timeout(STORED_EVERY_S) as quiet:
                    data = await content.readany()
            except TimeoutError:
                if not quiet.expired():
                    raise
                await self._flush()
                continue
            if not data:
                break
            *events, unread = (unread + data).split(BLANK)
            for event in events:
                self._take(event)
            if clock() >= due_s:
                await self._flush()
                due_s = clock() + STORED_EVERY_S
        await self._flush()
        if self._end is None:
            raise NoAnswer("the stream broke off")
        return StreamEnd(*self._end, self._record)

    def _take(self, event: bytes) -> None:
        if event.startswith(b":"):
            if event.startswith(RECORD):
                self._record = event.removeprefix(RECORD)
                self._complete.set()
            return
        try:
            self._read(event, read(event))
        except msgspec.DecodeError as error:
            raise NoAnswer(f"an event of the stream cannot be read: {error}") from None

    def _read(self, event: bytes, parsed: Event) -> None:
        match parsed.type:
            case "response.failed":
                error = _decode_failed(parsed.response).error
                body = {"error": {"code": error.type, "message": error.message, "param": error.param}}
                self._end = 502, msgspec.json.encode(body)
            case "response.completed" | "response.incomplete":
                self._end = 200, bytes(parsed.response)
            case "response.created" if self._begun:
                pass
            case kind if bytes(parsed.response):
                whole = msgspec.Raw(with_fields(parsed.response, {"created_at": self._created_at}))
                self._add(event_of(kind, self._next, {"response": whole}))
            case _:
                number = b'"sequence_number":%d'  # the second member of an event
                self._add(event.replace(number % parsed.sequence_number, number % self._next, 1) + BLANK)

    def _add(self, event: bytes) -> None:
        self._size_bytes += len(event)
        if not self.full:
            self._events.append(event)
            self._next += 1

    async def _flush(self) -> None:
        if self._events:
            try:
                await self._store(self._first, self._next, b"".join(self._events))
            except LeaseLost:
                if not self._complete.is_set():
                    raise
                # `transitions.end` decides whether the run is billed
            self._first, self._events = self._next, []
