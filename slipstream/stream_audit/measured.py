"""What was measured, as plain data: all that rules judge by. Times of arrival are the client's monotonic clock."""

from __future__ import annotations

import msgspec

from contracts.stream_audit import Opening


class Received(msgspec.Struct, frozen=True):
    """One event. bytes: as it stands in the stream, uncompressed."""

    number: int
    sent_us: int
    """By the gateway's monotonic clock."""
    arrived_s: float
    bytes: int
    chunk: int
    """The HTTP chunk that it came in, counted from 0."""


class Stall(msgspec.Struct, frozen=True):
    """The client itself did not run between these moments: what came meanwhile seems to have come at their end."""

    from_s: float
    until_s: float


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One request for the known stream, and what came of it."""

    events: int
    """Asked for."""
    interval_ms: int
    """Asked for."""
    status: int
    http_version: str
    """Of the answer, as it reached the client."""
    headers: dict[str, str]
    """Of the answer, names in lower case."""
    opening: Opening | None
    received: tuple[Received, ...] = ()
    stalls: tuple[Stall, ...] = ()
    new_connection: bool
    """The client had to connect for it."""
    asked_s: float
    """When the request was sent, on a connection that stood."""
    ended_s: float
    """When the stream's end was seen."""
    complete: bool
    """It ended with [DONE]."""
    failure: str = ""
    """How the connection broke off, if it did."""


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """A handshake, and the certificate."""

    version: str
    """Such as TLSv1.3."""
    cipher: str
    http2: bool
    """Offered both, the other side chose HTTP/2."""
    handshake_ms: float
    """The shortest of several."""
    issuer: str
    expires_at: str
    """RFC 3339."""
    valid_days: float
    """From now on; below 0: expired."""
    untrusted: str = ""
    """Why the certificate was not accepted, if it was not."""


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """How a connection comes about."""

    address: str
    dns_ms: float | None
    """One look-up; None: the URL has an address."""
    connect_ms: float
    """TCP's handshake, one round trip: the shortest of several."""
    tls: Tls | None
    """None: plain HTTP."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One audit. Streams are empty or None where they were not asked for, or could not be."""

    url: str
    client_request_id: str
    """What the client called each of its requests."""
    connection: Connection
    short: tuple[Stream, ...] = ()
    """Streams of one event, one after the other."""
    slow: Stream | None = None
    fast: Stream | None = None
    idle: Stream | None = None
    """Two events with a long silence between."""

    @property
    def streams(self) -> tuple[Stream, ...]:
        """All in the order of asking, the silent one excepted."""
        return self.short + tuple(stream for stream in (self.slow, self.fast) if stream is not None)
