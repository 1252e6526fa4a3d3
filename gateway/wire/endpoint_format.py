"""The part of a wire format that endpoints with OpenAI's headers and errors share: key, headers, refusals.

Editors' APIs share it, because their clients show at most a refusal's text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

import msgspec

from contracts.errors import SlipstreamError
from gateway.wire.config import RequestConfig
from gateway.wire.decode import NOT_PART, NULL_IS_ABSENCE, decode
from gateway.wire.errors import Headers, body_of, status_of
from gateway.wire.format import COMMENT, EVENT_STREAM
from gateway.wire.key_header import authorization_of
from gateway.wire.rate_headers import rate_headers
from gateway.wire.rate_state import RateLimitStatus

BodyT = TypeVar("BodyT", bound=msgspec.Struct)


class EndpointFormat:
    """A `WireFormat` without its name, decoding, preparation and responses."""

    stream_headers = EVENT_STREAM
    heartbeat = COMMENT

    def authorization(self, headers: Mapping[bytes, bytes]) -> bytes:
        return authorization_of(headers)

    def headers(self, request_id: str) -> Headers:
        return [(b"x-request-id", request_id.encode())]

    def rate_headers(self, state: RateLimitStatus) -> Headers:
        return rate_headers(state)

    def error_status(self, error: SlipstreamError) -> int:
        return status_of(error)

    def error_body(self, error: SlipstreamError, request_id: str) -> bytes:
        return body_of(error)

    def error_event(self, error: SlipstreamError, request_id: str) -> bytes:
        """The error as the last event; no [DONE] follows it."""
        return b"data: " + self.error_body(error, request_id) + b"\n\n"


class BodyFormat(EndpointFormat, Generic[BodyT]):
    """An `EndpointFormat` whose body is one struct. unsupported, not_part, without_effect: see `decode`."""

    body_type: type[BodyT]
    unsupported: Collection[str] = ()
    not_part = NOT_PART
    without_effect = NULL_IS_ABSENCE

    def __init__(self, _: RequestConfig) -> None:
        self._body_decoder = msgspec.json.Decoder(self.body_type)

    def decode(self, body: bytes) -> BodyT:
        """Raises a RequestError that names the field."""
        return decode(
            self._body_decoder,
            body,
            self.body_type,
            self.unsupported,
            self.not_part,
            without_effect=self.without_effect,
        )


class FillFormat(EndpointFormat):
    """An `EndpointFormat` for editors' clients."""

    def rate_headers(self, state: RateLimitStatus) -> Headers:
        """No headers: these clients read no counters, and a refusal's `Retry-After` gives the delay."""
        return []
