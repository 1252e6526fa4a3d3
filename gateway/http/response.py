"""Writes one HTTP answer: headers once, then events or a body, or an error in the form that is still possible."""

from __future__ import annotations

from typing import Any

from contracts.errors import SlipstreamError
from gateway.http.client_connection import ClientConnection
from gateway.wire.errors import Headers, headers_of
from gateway.wire.format import WireFormat

JSON: Headers = [(b"content-type", b"application/json")]


class ResponseWriter:
    """One response. `headers` may grow until the start. Writing never waits: see `ClientConnection.full`."""

    __slots__ = (
        "_connection",
        "_format",
        "_request_id",
        "_streaming",
        "error",
        "error_code",
        "headers",
        "status",
        "written",
    )

    def __init__(self, connection: ClientConnection, wire_format: WireFormat[Any], request_id: str) -> None:
        self._connection = connection
        self._format = wire_format
        self._request_id = request_id
        self._streaming = False
        self.headers = wire_format.headers(request_id)
        self.status = 0
        self.error_code: str | None = None
        self.error: SlipstreamError | None = None
        self.written = False
        """Set when a stream's events are sent; the heartbeat's sweep clears it."""

    @property
    def started(self) -> bool:
        """Whether the status can no longer change."""
        return self._connection.started

    @property
    def ended(self) -> bool:
        """Whether the response has ended, so that nothing more can be sent."""
        return self._connection.ended

    def start_stream(self) -> None:
        """Begin an event stream, unless it has begun; its headers are sent with the first events."""
        if not self._connection.started:
            self._streaming = True
            self._start(200, self._format.stream_headers)

    def events(self, data: bytes) -> None:
        self.written = True
        self._connection.write(data)

    def heartbeat(self) -> None:
        """Send a comment in a stream that has begun."""
        self._connection.write(self._format.heartbeat)

    def end_stream(self, data: bytes) -> None:
        """Send the last events and end the response."""
        self._connection.end(data)

    def whole(self, status: int, body: bytes, extra: Headers | None = None) -> None:
        """Send a complete JSON answer."""
        self._start(status, [*JSON, (b"content-length", b"%d" % len(body)), *(extra or [])])
        self._connection.end(body)

    def fail(self, error: SlipstreamError, extra: Headers | None = None) -> None:
        """Report an error: as a status while that is possible, else as the stream's last event."""
        self.error_code = error.code
        self.error = error
        if self.ended:
            return
        if not self.started:
            body = self._format.error_body(error, self._request_id)
            self.whole(self._format.error_status(error), body, [*headers_of(error), *(extra or [])])
        elif self._streaming:
            self._connection.end(self._format.error_event(error, self._request_id))
        else:
            self._connection.end(b"")

    async def drained(self) -> None:
        """Return when the client has read enough of the output, or has left."""
        if self._connection.full:
            await self._connection.drained()

    @property
    def full(self) -> bool:
        """Whether the client does not keep up."""
        return self._connection.full

    def _start(self, status: int, headers: Headers) -> None:
        self.status = status
        self._connection.start(status, headers + self.headers)
