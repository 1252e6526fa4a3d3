"""The measurements by which rules judge, as plain data. Times of arrival are by the client's monotonic clock."""

from __future__ import annotations

import msgspec

from contracts.stream_audit import Opening


class Received(msgspec.Struct, frozen=True):
    """One event. bytes: its size in the stream, uncompressed."""

    number: int
    sent_us: int
    """The time by the gateway's monotonic clock."""
    arrived_s: float
    bytes: int
    chunk: int
    """The HTTP chunk in which it arrived, counted from 0."""


class Stall(msgspec.Struct, frozen=True):
    """A period in which the client itself did not run: events that arrived in it seem to arrive at its end."""

    from_s: float
    until_s: float


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One request for the known stream, and its response."""

    events: int
    """The number of events in the request."""
    interval_ms: int
    """The interval in the request."""
    status: int
    http_version: str
    """The response's HTTP version, as it reached the client."""
    headers: dict[str, str]
    """The response's headers, names in lower case."""
    opening: Opening | None
    received: tuple[Received, ...] = ()
    stalls: tuple[Stall, ...] = ()
    new_connection: bool
    """Whether the request needed a new connection."""
    asked_s: float
    """When the request was sent, after the connection was open."""
    ended_s: float
    """When the client saw the stream's end."""
    complete: bool
    """Whether it ended with [DONE]."""
    failure: str = ""
    """Why the connection broke off; empty if it did not."""


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """A TLS handshake and its certificate."""

    version: str
    """Such as TLSv1.3."""
    cipher: str
    http2: bool
    """Whether the server chose HTTP/2 when offered HTTP/2 and HTTP/1.1."""
    handshake_ms: float
    """The shortest of several."""
    issuer: str
    expires_at: str
    """RFC 3339."""
    valid_days: float
    """Days until it expires; below 0 if it has expired."""
    untrusted: str = ""
    """Why the certificate was not accepted; empty if it was."""


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """The durations of a connection's steps."""

    address: str
    dns_ms: float | None
    """One look-up; None if the URL has an address."""
    connect_ms: float
    """TCP's handshake, one round trip; the shortest of several."""
    tls: Tls | None
    """None for plain HTTP."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One audit. Streams that were not requested, or could not be, are empty or None."""

    url: str
    client_request_id: str
    """The id that the client sent with each request."""
    connection: Connection
    short: tuple[Stream, ...] = ()
    """Streams of one event, one after the other."""
    slow: Stream | None = None
    fast: Stream | None = None
    idle: Stream | None = None
    """Two events with a long silence between them."""

    @property
    def streams(self) -> tuple[Stream, ...]:
        """All streams but the silent one, in the order of their requests."""
        return self.short + tuple(stream for stream in (self.slow, self.fast) if stream is not None)
