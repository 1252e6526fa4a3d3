"""Refusals in Anthropic's form, which has few types, and the status 529 for our load."""

from __future__ import annotations

from typing import Literal

import msgspec

from contracts.errors import PROMPT_CAP, ContextTooLong, InsufficientQuota, LimitDetail, LimitError, SlipstreamError
from gateway.wire.errors import status_of

OVERLOADED = 529
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}


class AnthropicErrorDetail(msgspec.Struct):
    """The error."""

    type: str
    message: str


class AnthropicError(msgspec.Struct, kw_only=True):
    """Contents of an error response or an error event."""

    type: Literal["error"] = "error"
    error: AnthropicErrorDetail
    request_id: str


def error_status(error: SlipstreamError) -> int:
    """The HTTP status of a refusal."""
    if _cap_of(error) is not None:
        return 400  # after this, agents shorten their conversation; after a 429, they repeat it
    status = status_of(error)
    return OVERLOADED if status == 503 else status


def error_body(error: SlipstreamError, request_id: str) -> bytes:
    """The JSON of a refusal."""
    status = error_status(error)
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    if isinstance(error, InsufficientQuota):
        kind = "billing_error"
    return msgspec.json.encode(AnthropicError(error=AnthropicErrorDetail(kind, _message(error)), request_id=request_id))


def _message(error: SlipstreamError) -> str:
    """Claude Code reads both counts from the beginning of this sentence, and then shortens its conversation."""
    if isinstance(error, ContextTooLong):
        return f"prompt is too long: {error.prompt_tokens} tokens > {error.limit_tokens} maximum. {error.message}"
    if (cap := _cap_of(error)) is not None:
        return f"prompt is too long: {cap.requested} tokens > {cap.limit} maximum. {error.message}"
    return error.message


def _cap_of(error: SlipstreamError) -> LimitDetail | None:
    """The key's, project's or organization's limit on a prompt's tokens, if the error reports it."""
    detail = error.limit if isinstance(error, LimitError) else None
    return detail if detail is not None and detail.counter == PROMPT_CAP else None
