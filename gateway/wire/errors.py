"""Maps platform errors to HTTP statuses, and to OpenAI's JSON if the wire format has no error JSON of its own.

The rule for clients: 429 is the caller's limit, 503 is our load, 5xx may be retried after `Retry-After`, 4xx may not.
"""

from __future__ import annotations

import math

import msgspec

from contracts.errors import (
    Conflict,
    IdempotencyMismatch,
    InsufficientQuota,
    LimitDetail,
    LimitError,
    RequestTooExpensive,
    SlipstreamError,
)

Headers = list[tuple[bytes, bytes]]

WORTH_WAITING_S = 120
"""The longest delay that OpenAI's SDK waits by itself."""

STATUS_AND_TYPE: dict[str, tuple[int, str]] = {
    "invalid_config": (500, "server_error"),
    "invalid_request": (400, "invalid_request_error"),
    "invalid_json": (400, "invalid_request_error"),
    "invalid_value": (400, "invalid_request_error"),
    "missing_required_parameter": (400, "invalid_request_error"),
    "unknown_parameter": (400, "invalid_request_error"),
    "unsupported_parameter": (400, "invalid_request_error"),
    "request_too_large": (413, "invalid_request_error"),
    "request_headers_too_large": (431, "invalid_request_error"),
    "request_timeout": (408, "invalid_request_error"),
    "transfer_coding_unsupported": (501, "invalid_request_error"),
    "model_not_found": (404, "invalid_request_error"),
    "model_access_denied": (403, "invalid_request_error"),
    "wrong_endpoint": (400, "invalid_request_error"),
    "not_found": (404, "invalid_request_error"),
    "method_not_allowed": (405, "invalid_request_error"),
    "context_length_exceeded": (400, "invalid_request_error"),
    "special_token_in_text": (400, "invalid_request_error"),
    "engine_refused": (400, "invalid_request_error"),
    "conflict": (409, "invalid_request_error"),
    "version_mismatch": (412, "invalid_request_error"),
    "invalid_link": (400, "invalid_request_error"),
    "idempotency_key_reused": (409, "idempotency_error"),
    "idempotency_key_in_flight": (409, "idempotency_error"),
    "missing_api_key": (401, "authentication_error"),
    "invalid_api_key": (401, "authentication_error"),
    "revoked_api_key": (401, "authentication_error"),
    "expired_api_key": (401, "authentication_error"),
    "wrong_key_kind": (401, "authentication_error"),
    "tenant_disabled": (403, "permission_error"),
    "insufficient_scope": (403, "permission_error"),
    "sign_in_refused": (401, "authentication_error"),
    "totp_required": (401, "authentication_error"),
    "session_ended": (401, "authentication_error"),
    "foreign_page": (403, "permission_error"),
    "csrf_token_refused": (403, "permission_error"),
    "permission_denied": (403, "permission_error"),
    "rate_limit_exceeded": (429, "rate_limit_error"),
    "insufficient_quota": (429, "insufficient_quota"),
    "request_exceeds_limit": (429, "rate_limit_error"),
    "too_many_connections": (429, "rate_limit_error"),
    "service_unavailable": (503, "service_unavailable_error"),
    "auth_unavailable": (503, "service_unavailable_error"),
    "limiter_unavailable": (503, "service_unavailable_error"),
    "budget_unavailable": (503, "service_unavailable_error"),
    "journal_unavailable": (503, "service_unavailable_error"),
    "response_store_unavailable": (503, "service_unavailable_error"),
    "router_unavailable": (503, "service_unavailable_error"),
    "no_engine_available": (503, "service_unavailable_error"),
    "overloaded": (503, "service_unavailable_error"),
    "connections_exhausted": (503, "service_unavailable_error"),
    "draining": (503, "service_unavailable_error"),
    "preparation_timeout": (503, "service_unavailable_error"),
    "engine_failed": (502, "server_error"),
    "engine_timeout": (504, "server_error"),
    "engine_loop": (508, "server_error"),
    "adapter_unavailable": (503, "service_unavailable_error"),
    "handed_over": (503, "service_unavailable_error"),
    "internal_error": (500, "server_error"),
}

EVERY_OPERATION = {
    408: "The request took too long to arrive.",
    429: "This address has too many connections open.",
    431: "The request's URL and headers are too large.",
    500: "A server fault: quote the request id when you report it.",
}
"""Possible responses to any request, for the OpenAPI documents."""


class ErrorDetail(msgspec.Struct):
    """OpenAI's error object."""

    message: str
    type: str
    param: str | None
    code: str
    limit: LimitDetail | msgspec.UnsetType = msgspec.UNSET
    """Ours: which limit refused."""


class ErrorBody(msgspec.Struct):
    """Contents of an error response or an error event."""

    error: ErrorDetail


def status_of(error: SlipstreamError) -> int:
    return STATUS_AND_TYPE[error.code][0]


def body_of(error: SlipstreamError) -> bytes:
    """OpenAI's error JSON."""
    limit = error.limit if isinstance(error, LimitError) and error.limit is not None else msgspec.UNSET
    detail = ErrorDetail(error.message, STATUS_AND_TYPE[error.code][1], error.param, error.code, limit)
    return msgspec.json.encode(ErrorBody(detail))


def headers_of(error: SlipstreamError) -> Headers:
    """Headers that control a client's retry; OpenAI's SDK honours all three."""
    headers: Headers = []
    if error.retry_after_s is not None:
        milliseconds = math.ceil(error.retry_after_s * 1e3)
        headers.append((b"retry-after", b"%d" % math.ceil(error.retry_after_s)))
        headers.append((b"retry-after-ms", b"%d" % milliseconds))
    # Claude Code retries a 401 for minutes without the header
    unauthorized = status_of(error) == 401
    hopeless = unauthorized or isinstance(error, RequestTooExpensive | Conflict | IdempotencyMismatch)
    if hopeless or _frees_late(error) or (isinstance(error, InsufficientQuota) and error.retry_after_s is None):
        headers.append((b"x-should-retry", b"false"))
    if unauthorized:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


def _frees_late(error: SlipstreamError) -> bool:
    """Whether a limit frees too late to retry, like a daily or monthly limit: a client's own retries only add load."""
    return isinstance(error, LimitError) and (error.retry_after_s or 0) > WORTH_WAITING_S
