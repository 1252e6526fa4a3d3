"""Builds a Litestar application from routes, with OpenAI's error bodies everywhere."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException, MethodNotAllowedException, ValidationException
from litestar.types import ControllerRouterHandler

from contracts.dated_request_id import mint
from contracts.errors import BodyTooLarge, InternalError, InvalidField, MethodNotAllowed, SlipstreamError
from gateway.http.path_parameter import refusal_of
from gateway.http.unknown_url import unknown_url
from gateway.wire.errors import body_of, headers_of, status_of

UNMENTIONED = ("", "OPTIONS", "HEAD")
"""Methods to leave out of the advice after a wrong method."""
UNSERVED, ASKED = "TRACE", "slipstream.method"
"""A method that no path has, and the scope's key of the requested method."""

logger = logging.getLogger(__name__)


def routes(
    handlers: Sequence[ControllerRouterHandler],
    state: State,
    max_body_bytes: int,
    served: Mapping[str, str],
    administered: Collection[str] = frozenset(),
) -> Litestar:
    """Create the application. state: has `services` for handlers. served, administered: see `unknown_url`."""

    def translate(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        response = _response(_translated(request, error, max_body_bytes, served, administered))
        if isinstance(error, MethodNotAllowedException):
            response.headers["allow"] = _allowed((error.headers or {}).get("allow", "").split(", "))
            if _method(request) == "OPTIONS":
                return Response(b"", status_code=204, headers=response.headers)
        return response

    return _Routes(
        route_handlers=handlers,
        dependencies={"services": Provide(_services)},
        exception_handlers={HTTPException: translate, Exception: translate},
        request_max_body_size=max_body_bytes,
        openapi_config=None,
        state=state,
        logging_config=None,
        debug=False,
    )


class _Routes(Litestar):
    """Litestar's own answer to OPTIONS lists one of a path's methods, and only for a caller that its guards admit.
    Here, OPTIONS gets the answer to a method that no path has, whose `Allow` is complete."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request, or uvicorn's lifespan."""
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            scope = {**scope, "method": UNSERVED, ASKED: "OPTIONS"}
        await super().__call__(scope, receive, send)


def _method(request: Request[Any, Any, Any]) -> str:
    return str(request.scope.get(ASKED, request.method))


async def _services(state: State) -> Any:
    return state.services


def _translated(
    request: Request[Any, Any, Any],
    error: Exception,
    max_body_bytes: int,
    served: Mapping[str, str],
    administered: Collection[str],
) -> SlipstreamError:
    if isinstance(error, SlipstreamError):
        return error
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return unknown_url(_method(request), request.url.path, served, administered)
        if error.status_code == 405:
            return _wrong_method(request, error)
        if error.status_code == 413:
            return BodyTooLarge(f"The request body is larger than {max_body_bytes} bytes.")
        if isinstance(error, ValidationException):
            return refusal_of(error, request)
        if error.status_code < 500:
            return InvalidField(error.detail)
    request_id = mint()
    logger.exception("request %s failed", request_id, exc_info=error)
    return InternalError(f"Internal error. Quote request {request_id} when you report it.")


def _wrong_method(request: Request[Any, Any, Any], error: HTTPException) -> MethodNotAllowed:
    methods = [method for method in (error.headers or {}).get("allow", "").split(", ") if method not in UNMENTIONED]
    advice = f"; use {' or '.join(sorted(methods))}" if methods else ""
    return MethodNotAllowed(f"{request.method} is not allowed for {request.url.path}{advice}.")


def _allowed(methods: Iterable[str]) -> str:
    """The header `Allow` of a path with these methods, in order. HEAD is answered wherever GET is."""
    allowed = set(filter(None, methods))
    return ", ".join(sorted(allowed | {"HEAD"} if "GET" in allowed else allowed))


def _response(error: SlipstreamError) -> Response[bytes]:
    headers = {name.decode(): value.decode() for name, value in headers_of(error)}
    headers["x-request-id"] = mint()
    return Response(body_of(error), status_code=status_of(error), headers=headers, media_type="application/json")
