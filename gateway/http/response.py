"""Writes one HTTP answer: headers once, then events or a body, or an error in whichever form is still possible."""

from __future__ import annotations

from contracts.errors import SlipstreamError
from gateway.http.client_connection import ClientConnection
from gateway.wire.errors import Headers, body_of, event_of, headers_of, status_of

EVENT_STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
JSON: Headers = [(b"content-type", b"application/json")]


class ResponseWriter:
    """One response. `headers` may grow until the start. Writing never waits: see `ClientConnection.full`."""

    __slots__ = ("_channel", "_streaming", "error", "error_code", "headers", "status")

    def __init__(self, channel: ClientConnection, headers: Headers) -> None:
        self._channel = channel
        self._streaming = False
        self.headers = headers
        self.status = 0
        self.error_code: str | None = None
        self.error: SlipstreamError | None = None

    @property
    def started(self) -> bool:
        """The status can no longer change."""
        return self._channel.started

    @property
    def ended(self) -> bool:
        """Nothing more can be said."""
        return self._channel.ended

    def start_stream(self) -> None:
        """Begin an event stream; its headers leave with the next events."""
        self._streaming = True
        self._start(200, EVENT_STREAM)

    def events(self, data: bytes) -> None:
        """Send events."""
        self._channel.write(data)

    def end_stream(self, data: bytes) -> None:
        """Send the last events and end the response."""
        self._channel.end(data)

    def whole(self, status: int, body: bytes, extra: Headers | None = None) -> None:
        """Send a complete JSON answer."""
        self._start(status, [*JSON, (b"content-length", b"%d" % len(body)), *(extra or [])])
        self._channel.end(body)

    def fail(self, error: SlipstreamError, extra: Headers | None = None) -> None:
        """Report an error: as a status while that is possible, else as one last event without [DONE]."""
        self.error_code = error.code
        self.error = error
        if self.ended:
            return
        if not self.started:
            self.whole(status_of(error), body_of(error), [*headers_of(error), *(extra or [])])
        elif self._streaming:
            self._channel.end(event_of(error))
        else:
            self._channel.end(b"")

    async def drained(self) -> None:
        """Return when the client has read enough of what was written, or is gone."""
        if self._channel.full:
            await self._channel.drained()

    @property
    def full(self) -> bool:
        """The client does not keep up."""
        return self._channel.full

    def _start(self, status: int, headers: Headers) -> None:
        self.status = status
        self._channel.start(status, headers + self.headers)
