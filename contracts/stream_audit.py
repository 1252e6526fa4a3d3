"""The known stream that a gateway sends and `slipstream audit-stream` reads: what both must agree on.

Each event is one `data:` line of JSON, as long as a chat completion's; the last line is `data: [DONE]`. The first
event says what arrived at the gateway and what left it, so that the client sees what was changed in between.
"""

from __future__ import annotations

import msgspec

PATH = "/v1/stream-audit"
EVENT_BYTES = 200
"""Of an event's JSON, the opening excepted: about what an event of a chat completion has."""
DONE = "[DONE]"
WATCHED_HEADERS = ("connection", "forwarded", "via", "x-forwarded-for", "x-forwarded-proto", "x-real-ip")
"""Of a request's headers, those that proxies add or change; a gateway tells which came, not what was in them."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The request as the gateway saw it, and the head of its answer."""

    request_id: str
    instance: str
    """Of the gateway process: a name that it gave itself when it started."""
    request_number: int
    """Of the request among all that its connection brought to the gateway, from 1."""
    http_version: str
    """What was spoken on that connection: `1.0` or `1.1`."""
    client_request_id: str | None
    """The request's own `x-client-request-id` or `x-request-id`."""
    accept_encoding: str
    closes: bool
    """The request asked for its connection to be closed after it."""
    request_headers: tuple[str, ...]
    """Which of WATCHED_HEADERS came."""
    headers: dict[str, str]
    """The answer's, as they left."""


class AuditEvent(msgspec.Struct, omit_defaults=True):
    """One event. number: from 0. sent_us: the gateway's monotonic clock, just before the event was written."""

    number: int
    sent_us: int
    opening: Opening | None = None
    """With the first event."""
    padding: str = ""
