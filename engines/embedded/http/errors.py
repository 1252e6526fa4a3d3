"""Errors in SGLang's flat form. Only this module of the engine maps errors to HTTP statuses."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from contracts.errors import (
    AuthError,
    BodyTooLarge,
    EngineFailed,
    InternalError,
    LimitError,
    MethodNotAllowed,
    ModelNotFound,
    NotFound,
    PermissionDenied,
    RequestError,
    ServiceError,
    SlipstreamError,
)

STATUSES: tuple[tuple[type[SlipstreamError], HTTPStatus], ...] = (
    (PermissionDenied, HTTPStatus.FORBIDDEN),
    (AuthError, HTTPStatus.UNAUTHORIZED),
    (BodyTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (NotFound, HTTPStatus.NOT_FOUND),
    (ModelNotFound, HTTPStatus.NOT_FOUND),
    (MethodNotAllowed, HTTPStatus.METHOD_NOT_ALLOWED),
    (RequestError, HTTPStatus.BAD_REQUEST),
    # these are ServiceErrors too, but a retry fixes none of them, and 503 means a lack of capacity
    (InternalError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (EngineFailed, HTTPStatus.INTERNAL_SERVER_ERROR),
    (LimitError, HTTPStatus.TOO_MANY_REQUESTS),
    (ServiceError, HTTPStatus.SERVICE_UNAVAILABLE),
)
TYPES = {
    # all other statuses are named as the client's error or the engine's
    HTTPStatus.UNAUTHORIZED: "AuthenticationError",
    HTTPStatus.FORBIDDEN: "PermissionDeniedError",
    HTTPStatus.NOT_FOUND: "NotFoundError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableError",
}


class ErrorBody(msgspec.Struct, frozen=True):
    """An error in SGLang's flat shape."""

    object: str
    message: str
    type: str
    param: str | None
    code: int


def error_answer(error: SlipstreamError) -> tuple[int, bytes]:
    """The status and body of an error response."""
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
    name = TYPES.get(status, "BadRequestError" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "InternalServerError")
    return status, msgspec.json.encode(ErrorBody("error", error.message, name, error.param, int(status)))


def error_event(error: SlipstreamError) -> bytes:
    """The event that ends a stream after it has begun, like SGLang's."""
    _, body = error_answer(error)
    return b'data: {"error":%b}\n\n' % body
