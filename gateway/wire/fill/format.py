"""Common parts of the formats of editors' clients: keys, headers, and errors as OpenAI's JSON."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.errors import SlipstreamError
from gateway.wire.errors import Headers, body_of, status_of
from gateway.wire.fill.request import Filled
from gateway.wire.format import COMMENT, EVENT_STREAM
from gateway.wire.key_header import authorization_of
from gateway.wire.prepared import Prepared
from gateway.wire.rate_state import RateLimitStatus


class FillFormat:
    """Part of a `WireFormat`: all but its name, decoding, preparation and responses."""

    stream_headers = EVENT_STREAM
    heartbeat = COMMENT

    def authorization(self, headers: Mapping[bytes, bytes]) -> bytes:
        return authorization_of(headers)

    def headers(self, request_id: str) -> Headers:
        return [(b"x-request-id", request_id.encode())]

    def rate_headers(self, state: RateLimitStatus) -> Headers:
        """None: these clients read no counters, and a refusal's `Retry-After` gives the delay."""
        return []

    def error_status(self, error: SlipstreamError) -> int:
        return status_of(error)

    def error_body(self, error: SlipstreamError, request_id: str) -> bytes:
        """Clients read the status and show the text at most; people read OpenAI's JSON."""
        return body_of(error)

    def error_event(self, error: SlipstreamError, request_id: str) -> bytes:
        """An error as the last event; no [DONE] follows it."""
        return b"data: " + self.error_body(error, request_id) + b"\n\n"


def filled_of(prepared: Prepared) -> Filled:
    """The details that `prepare_fill` left for the response."""
    assert isinstance(prepared.details, Filled)
    return prepared.details
