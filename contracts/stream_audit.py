"""Format of the known stream that a gateway sends and `slipstream tools audit-stream` reads.

Each event is one `data:` line of JSON, as long as a chat completion's; the last line is `data: [DONE]`. The first event
carries the request as it arrived at the gateway and the response headers as they left, so that the client detects
changes in between.
"""

from __future__ import annotations

import msgspec

PATH = "/v1/stream-audit"
EVENT_BYTES = 200
"""Size of an event's JSON, except the opening: about that of a chat completion's event."""
DONE = "[DONE]"
WATCHED_HEADERS = ("connection", "forwarded", "via", "x-forwarded-for", "x-forwarded-proto", "x-real-ip")
"""Request headers that proxies add or change; a gateway reports their names, not their values."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The request as the gateway received it, and the head of its response."""

    request_id: str
    instance: str
    """Name that the gateway process gave itself at its start."""
    request_number: int
    """Number of the request on its connection to the gateway, from 1."""
    http_version: str
    """HTTP version on that connection: `1.0` or `1.1`."""
    client_request_id: str | None
    """The request's own `x-client-request-id` or `x-request-id`."""
    accept_encoding: str
    closes: bool
    """Whether the request closes its connection afterwards."""
    request_headers: tuple[str, ...]
    """Names of WATCHED_HEADERS that the request had."""
    headers: dict[str, str]
    """The response headers, as they left."""


class AuditEvent(msgspec.Struct, omit_defaults=True):
    """One event. number: from 0. sent_us: the gateway's monotonic clock, just before the event was written."""

    number: int
    sent_us: int
    opening: Opening | None = None
    """Only in the first event."""
    padding: str = ""
