"""Refusals in llama.cpp's form: the status is repeated as a number, and the type is one of its own few."""

from __future__ import annotations

import msgspec

from contracts.errors import ContextTooLong, SlipstreamError
from gateway.wire.errors import status_of

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "unavailable_error",
    502: "server_error",
    503: "unavailable_error",
    504: "server_error",
}
"""Types of `format_error_response` in llama.cpp's server, which has no limits and no type for them."""


class LlamaErrorDetail(msgspec.Struct):
    """code: the HTTP status."""

    code: int
    message: str
    type: str


class LlamaError(msgspec.Struct):
    """Contents of an error response or an error event."""

    error: LlamaErrorDetail


def error_body(error: SlipstreamError) -> bytes:
    """The JSON of a refusal."""
    status = status_of(error)
    kind = "exceed_context_size_error" if isinstance(error, ContextTooLong) else _type_of(status)
    return msgspec.json.encode(LlamaError(LlamaErrorDetail(status, error.message, kind)))


def _type_of(status: int) -> str:
    return TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
