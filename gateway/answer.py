"""Writes one HTTP answer: headers once, then events or a body, or an error in whichever form is still possible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from contracts.errors import SlipstreamError
from gateway.errors import Headers, body_of, event_of, headers_of, status_of

Send = Callable[[Any], Awaitable[None]]

EVENT_STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
JSON: Headers = [(b"content-type", b"application/json")]


class Answer:
    """One response. `headers` may grow until the start."""

    __slots__ = ("_send", "_streaming", "ended", "error_code", "headers", "started", "status")

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._streaming = False
        self.headers = headers
        self.started = False
        self.ended = False
        self.status = 0
        self.error_code: str | None = None

    async def start_stream(self) -> None:
        """Send the headers of an event stream."""
        self._streaming = True
        await self._start(200, EVENT_STREAM)

    async def events(self, data: bytes) -> None:
        """Send events. Blocks while the client does not read."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end_stream(self, data: bytes) -> None:
        """Send the last events and end the response."""
        await self._end(data)

    async def whole(self, status: int, body: bytes, extra: Headers | None = None) -> None:
        """Send a complete JSON answer."""
        await self._start(status, [*JSON, (b"content-length", b"%d" % len(body)), *(extra or [])])
        await self._end(body)

    async def fail(self, error: SlipstreamError, extra: Headers | None = None) -> None:
        """Report an error: as a status while that is possible, else as one last event without [DONE]."""
        self.error_code = error.code
        if self.ended:
            return
        if not self.started:
            await self.whole(status_of(error), body_of(error), [*headers_of(error), *(extra or [])])
        elif self._streaming:
            await self._end(event_of(error))
        else:
            await self._end(b"")

    async def _start(self, status: int, headers: Headers) -> None:
        self.started = True
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers + self.headers})

    async def _end(self, data: bytes) -> None:
        self.ended = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})
