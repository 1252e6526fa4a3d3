"""The console's own routes, by URL. Other modules have their functions; a new route is a line here."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints
from uuid import UUID

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from contracts.dated_request_id import mint
from contracts.errors import InvalidField, NotFound
from control.api.operation import IN_QUERY, query_of
from control.api.request import BoundedRequest
from control.console import own_account, sessions, sign_in, welcome
from control.console.console import Console, ConsoleCall
from control.console.oidc import flow
from gateway.wire.config import RequestConfig

PREFIX = "/console/api"
SENT = {"cache-control": "no-store", "referrer-policy": "no-referrer", "x-content-type-options": "nosniff"}
Service = Callable[..., Awaitable[Any]]


class ConsoleOperation(msgspec.Struct, frozen=True, kw_only=True):
    """A service as a route."""

    name: str
    """OpenAPI's operation id."""
    method: str
    path: str
    """Below /console/api."""
    service: Service
    signed_in: bool
    """Whether it needs a session."""
    redirects: bool
    """Whether it responds with a redirect and accepts unknown parameters."""
    body: type[msgspec.Struct] | None
    query: type[msgspec.Struct] | None
    returns: Any
    summary: str
    description: str


def operation(
    method: str, path: str, service: Service, *, signed_in: bool = True, redirects: bool = False
) -> ConsoleOperation:
    """The operation of a service. Parameters: see `ConsoleOperation`; the rest comes from the service itself."""
    hints = get_type_hints(service, include_extras=True)
    summary, _, description = inspect.cleandoc(service.__doc__ or "").partition("\n\n")
    return ConsoleOperation(
        name=f"console_{service.__name__}",
        method=method,
        path=path,
        service=service,
        signed_in=signed_in,
        redirects=redirects,
        body=hints.get("body"),
        query=hints.get("query"),
        returns=hints["return"],
        summary=summary.replace("\n", " "),
        description=description,
    )


OPERATIONS = (
    operation("GET", "/session", sessions.get_session, signed_in=False),
    operation("POST", "/session", sign_in.sign_in, signed_in=False),
    operation("DELETE", "/session", sessions.delete_session),
    operation("POST", "/welcome/preview", welcome.preview_link, signed_in=False),
    operation("POST", "/welcome", welcome.welcome, signed_in=False),
    operation("POST", "/password", own_account.change_password),
    operation("POST", "/totp", own_account.enrol_totp),
    operation("POST", "/totp/confirm", own_account.confirm_totp),
    operation("POST", "/totp/disable", own_account.disable_totp),
    operation("POST", "/totp/recovery-codes", own_account.renew_recovery_codes),
    operation("GET", "/sessions", sessions.list_sessions),
    operation("DELETE", "/sessions", sessions.end_sessions),
    operation("DELETE", "/sessions/{session_id}", sessions.end_session),
    operation("DELETE", "/membership", own_account.leave_organization),
    operation("GET", "/oidc/start", flow.start_oidc, signed_in=False, redirects=True),
    operation("GET", "/oidc/callback", flow.finish_oidc, signed_in=False, redirects=True),
    operation("GET", "/oidc/choices", flow.get_choices, signed_in=False),
    operation("POST", "/oidc/choice", flow.choose_organization, signed_in=False),
)


def console_routes(limits: RequestConfig) -> list[HTTPRouteHandler]:
    """All of the console's routes. limits: of request bodies."""
    return [_route(each, limits) for each in OPERATIONS]


def _route(operation: ConsoleOperation, limits: RequestConfig) -> HTTPRouteHandler:
    async def handle(request: BoundedRequest) -> Response[bytes]:
        console: Console = request.app.state.console
        visit = console.browsers.visit(request.scope)
        if not console.config.enabled:
            raise NotFound("There is no console here (gateway.console.enabled).")
        call = ConsoleCall(console, visit, mint())
        visit.require_own_page()  # before the body is read
        if operation.signed_in:
            call.require_session()
        result = await operation.service(call, **await _arguments(operation, request))
        headers = {"x-request-id": call.request_id, **SENT}
        if operation.redirects:
            return Response(b"", status_code=302, headers={**headers, "location": result}, cookies=call.cookies)
        body = msgspec.json.encode(result)
        return Response(body, status_code=200, headers=headers, cookies=call.cookies, media_type="application/json")

    return HTTPRouteHandler(
        PREFIX + operation.path.replace("_id}", "_id:str}"),
        http_method=operation.method,  # type: ignore[arg-type]
        status_code=302 if operation.redirects else 200,
        name=operation.name,
        request_class=BoundedRequest,
        opt={"operation": operation, "body_limits": limits},
    )(handle)


async def _arguments(operation: ConsoleOperation, request: BoundedRequest) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, text in request.path_params.items():
        arguments[name] = _id(name, text)
    if operation.query is not None:
        sent = request.query_params
        known = operation.query.__struct_fields__
        arguments["query"] = query_of(operation.query, {IN_QUERY + name: sent.get(name) for name in known})
    if not operation.redirects:
        known = () if operation.query is None else operation.query.__struct_fields__
        for name in request.query_params:
            if name not in known:
                raise InvalidField(f"Unknown parameter '{name[:100]}'.", param=name[:100])
    if operation.body is not None:
        arguments["body"] = await request.json()
    return arguments


def _id(name: str, text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"There is no {name.removesuffix('_id')} {text[:100]!r}: ids are UUIDs.") from None
