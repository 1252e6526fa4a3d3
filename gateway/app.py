"""Puts the routes together as a Litestar application with OpenAI's error bodies everywhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException, MethodNotAllowedException, ValidationException

from contracts.errors import (
    BodyTooLarge,
    InternalError,
    InvalidField,
    MethodNotAllowed,
    SlipstreamError,
)
from gateway.admin.controllers import OPERATIONS, PREFIX, admin_operations
from gateway.admin.openapi import admin_document
from gateway.admin.request import refusal_of
from gateway.auth.scopes import Scope
from gateway.autocomplete.openapi import with_autocomplete
from gateway.autocomplete.routes import CompletionEventsController, TabbyController
from gateway.config import GatewayConfig
from gateway.console.openapi import with_console
from gateway.console.pages import DIST, Pages, pages_route
from gateway.console.routes import console_routes
from gateway.front_door import FrontDoor
from gateway.http.document import document_route
from gateway.http.front_page import front_page
from gateway.http.unknown_url import unknown_url
from gateway.metering.journal.request_id import mint
from gateway.routes import (
    ModelsController,
    SystemController,
    inference_route,
    named_inference_route,
    stream_audit_route,
)
from gateway.services import Services
from gateway.serving.body_room import BodyRoom
from gateway.serving.endpoint import InferenceEndpoint, IsTheirs
from gateway.serving.loop_shares import LoopShares
from gateway.stream_audit.endpoint import StreamAuditEndpoint
from gateway.stream_audit.openapi import with_stream_audit
from gateway.wire.config import RequestConfig
from gateway.wire.errors import body_of, headers_of, status_of
from gateway.wire.format import WireFormat
from gateway.wire.llama_cpp.format import InfillFormat, LlamaCompletionFormat
from gateway.wire.llama_cpp.openapi import INFILL_PATH, LLAMA_COMPLETION_PATH, LLAMA_CPP_OPERATIONS
from gateway.wire.mistral.format import FimFormat
from gateway.wire.mistral.openapi import FIM_OPERATION, FIM_PATH
from gateway.wire.openai.format import ChatFormat, CompletionFormat, EngineCompletionFormat
from gateway.wire.openai.openapi import CHAT_PATH, COMPLETION_PATH, ENGINE_PATH, document
from gateway.wire.openai.stream_audit import StreamAuditFormat
from gateway.wire.tabby.body import has_segments
from gateway.wire.tabby.format import TabbyFormat
from gateway.wire.tabby.openapi import TABBY_OPERATION, TABBY_PATH

INFERENCE: Mapping[str, tuple[Callable[[RequestConfig], WireFormat[Any]], Scope]] = {
    CHAT_PATH: (ChatFormat, Scope.CHAT),
    COMPLETION_PATH: (CompletionFormat, Scope.COMPLETIONS),
    FIM_PATH: (FimFormat, Scope.COMPLETIONS),
    INFILL_PATH: (InfillFormat, Scope.COMPLETIONS),
    LLAMA_COMPLETION_PATH: (LlamaCompletionFormat, Scope.COMPLETIONS),
}
"""What each path of inference speaks, and what a key must be allowed for it."""
BY_BODY: Mapping[str, tuple[IsTheirs, Callable[[RequestConfig], WireFormat[Any]]]] = {
    TABBY_PATH: (has_segments, TabbyFormat),
}
"""Where two APIs have the same path: which bodies are the other one's, and what speaks it."""
SERVED = {**{path: "POST" for path in INFERENCE if path != LLAMA_COMPLETION_PATH}, "/v1/models": "GET"}
"""What clients of models ask for, and how. Not `/completion`: who asks for nearly that has misspelt OpenAI's."""
ADMINISTERED = frozenset(each.path for each in OPERATIONS)
"""Paths of the admin API, below its own."""

logger = logging.getLogger(__name__)


def create_app(services: Services, config: GatewayConfig) -> FrontDoor:
    """The ASGI application."""
    max_body_bytes, requests = config.max_body_bytes, config.requests
    shares, room = LoopShares(), BodyRoom(requests.organization_body_bytes)
    others = {path: [(is_theirs, wire_format(requests))] for path, (is_theirs, wire_format) in BY_BODY.items()}
    endpoints = {
        path: InferenceEndpoint(
            services, wire_format(requests), scope, max_body_bytes, requests, shares, room, others.get(path, [])
        )
        for path, (wire_format, scope) in INFERENCE.items()
    }
    engine_format = EngineCompletionFormat(requests)

    def engine_endpoint(model: str) -> InferenceEndpoint[Any]:
        wire_format = engine_format.of(model)
        return InferenceEndpoint(services, wire_format, Scope.COMPLETIONS, max_body_bytes, requests, shares, room)

    stream_audit = StreamAuditEndpoint(
        services, services.stream_audits, StreamAuditFormat(requests), shares, lambda: services.draining
    )
    inference = with_autocomplete(document([FIM_OPERATION, *LLAMA_CPP_OPERATIONS, TABBY_OPERATION]))

    def translate(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        response = _response(_translated(request, error, max_body_bytes))
        if isinstance(error, MethodNotAllowedException) and error.headers:
            response.headers.update(error.headers)  # `allow`: which methods there are
        return response

    routes = Litestar(
        route_handlers=[
            *(inference_route(path, endpoint) for path, endpoint in endpoints.items()),
            named_inference_route(ENGINE_PATH, engine_endpoint),
            ModelsController,
            SystemController,
            CompletionEventsController,
            TabbyController,
            front_page,
            stream_audit_route(stream_audit),
            document_route("/openapi.json", with_stream_audit(inference, config.stream_audit)),
            document_route(f"{PREFIX}/openapi.json", with_console(admin_document())),
            admin_operations(requests),
            *console_routes(requests),
            *([pages_route(Pages.read(DIST))] if config.console.enabled else ()),
        ],
        dependencies={"services": Provide(_services)},
        exception_handlers={HTTPException: translate, Exception: translate},
        request_max_body_size=max_body_bytes,
        openapi_config=None,
        state=State({"services": services, "shares": shares}, deep_copy=False),
        logging_config=None,
        debug=False,
    )
    before, _, behind = ENGINE_PATH.partition("{model}")
    return FrontDoor(endpoints, routes, {(before, behind): engine_endpoint})


async def _services(state: State) -> Services:
    services: Services = state.services
    return services


def _translated(request: Request[Any, Any, Any], error: Exception, max_body_bytes: int) -> SlipstreamError:
    if isinstance(error, SlipstreamError):
        return error
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return unknown_url(request.method, request.url.path, SERVED, ADMINISTERED)
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
    allowed = [method for method in (error.headers or {}).get("allow", "").split(", ") if method not in ("", "OPTIONS")]
    advice = f"; use {' or '.join(sorted(allowed))}" if allowed else ""
    return MethodNotAllowed(f"{request.method} is not allowed for {request.url.path}{advice}.")


def _response(error: SlipstreamError) -> Response[bytes]:
    headers = {name.decode(): value.decode() for name, value in headers_of(error)}
    headers["x-request-id"] = mint()
    return Response(body_of(error), status_code=status_of(error), headers=headers, media_type="application/json")
