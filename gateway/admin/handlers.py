"""The admin API's endpoints as Litestar handlers below /admin/v1, and its OpenAPI document."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, Router, route
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from gateway.admin.api import AdminRequest
from gateway.admin.endpoint import Endpoint
from gateway.admin.endpoints import ENDPOINTS
from gateway.admin.openapi import admin_document
from gateway.http.client_connection import SCOPE_KEY, ClientConnection
from gateway.http.document import document_route
from gateway.metering.journal.request_id import mint
from gateway.services import Services
from gateway.serving.endpoint import bearer_secret, whole_body
from gateway.wire.body_shape import Advice, BodyShape
from gateway.wire.config import RequestConfig

PREFIX = "/admin/v1"
ADVICE = Advice("Split it into several requests.", "Split it into several requests.")

AnyRequest = Request[Any, Any, State]


def admin_router(limits: RequestConfig) -> Router:
    """All of it. limits: what a body may hold, as of the inference endpoints."""
    openapi = document_route("/openapi.json", admin_document(ENDPOINTS, PREFIX))
    return Router(path=PREFIX, route_handlers=[openapi, *(_handler(endpoint, limits) for endpoint in ENDPOINTS)])


def _handler(endpoint: Endpoint, limits: RequestConfig) -> HTTPRouteHandler:
    path = endpoint.path
    for name in endpoint.parameters:
        path = path.replace(f"{{{name}}}", f"{{{name}:str}}")

    async def handle(request: AnyRequest, services: Services) -> Response[bytes]:
        return await _serve(endpoint, request, services, BodyShape(limits, ADVICE))

    handle.__name__ = endpoint.name
    return route(path, http_method=[endpoint.method], status_code=endpoint.status, opt={"endpoint": endpoint})(handle)  # type: ignore[list-item]


async def _serve(endpoint: Endpoint, request: AnyRequest, services: Services, shape: BodyShape) -> Response[bytes]:
    request_id = mint()
    secret = bearer_secret(request.headers.get("authorization", ""), services, "sk-slip-admin-...")
    channel: ClientConnection = request.scope[SCOPE_KEY]  # type: ignore[literal-required]
    if not channel.received:
        await services.admin.admit(endpoint, secret, request_id)  # nobody else's body is waited for
    answer = await services.admin.run(
        endpoint,
        AdminRequest(
            request_id=request_id,
            secret=secret,
            url=f"{request.url.path}?{request.url.query}",
            path=request.path_params,
            query=list(request.query_params.multi_items()),
            body=await _body(endpoint, request, services.admin.max_body_bytes, shape),
            content_type=request.headers.get("content-type", ""),
            idempotency_key=request.headers.get("idempotency-key"),
        ),
    )
    headers = {"x-request-id": request_id, "cache-control": "no-store"}
    if answer.replayed:
        headers["idempotent-replayed"] = "true"
    return Response(answer.body, status_code=answer.status, headers=headers, media_type="application/json")


async def _body(endpoint: Endpoint, request: AnyRequest, max_bytes: int, shape: BodyShape) -> bytes:
    """Raises BodyTooLarge as soon as it is."""
    if endpoint.method == "GET":
        return b""
    return await whole_body(dict(request.scope["headers"]), request.receive, max_bytes, shape.feed)
