"""Makes Litestar's route handlers from operations."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec
from litestar import Controller, Response
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Body, HeaderParameter, PathParameter, QueryParameter
from msgspec import Meta

from contracts.dated_request_id import mint
from control.api.api import AdminApi, AdminRequest
from control.api.operation import IN_QUERY, PARAMETER, WITH_SLASHES, Operation, takes_several
from control.api.request import BoundedRequest
from gateway.wire.errors import EVERY_OPERATION, ErrorBody

REFUSALS = {
    **EVERY_OPERATION,
    400: "The request cannot be understood: `error.param` names the field.",
    401: "No admin key and no session, or an invalid one.",
    403: "The role does not allow it, the tenant is disabled, or a session's request was not sent by our own page.",
    404: "The object does not exist, or belongs to another organization.",
    409: "It conflicts with existing objects, a limit of objects is reached, or the Idempotency-Key was already used.",
    413: "The body is too large.",
    429: (
        "The organization makes too many changes, has too many requests or reports under way, or this address has too "
        "many connections open; wait for `Retry-After`."
    ),
    503: "The database cannot be reached, or the admin API is busy; try again.",
}
STALE_VERSION = "The fleet is no longer at the version that If-Match names; the message names the current one."
IDEMPOTENCY_KEY = Annotated[str, Meta(min_length=1, max_length=255, pattern="^[ -~]+$", description="printable ASCII")]
ETAG = Annotated[str, Meta(min_length=1, max_length=30, pattern='^"[0-9]+"$', description="a version in quotes")]
TEXT = Annotated[str, Meta(min_length=1)]


class Documented(NamedTuple):
    """The documented type of a value that Litestar passes as text, for annotations."""

    kind: Any
    default: object = None


def controller(path: str, *operations: Operation) -> type[Controller]:
    """Litestar's controller of the operations at a path and below it; each path belongs to one controller."""
    whole = [msgspec.structs.replace(each, path=path + each.path) for each in operations]
    handlers = {each.name: _handler(each, below.path) for each, below in zip(whole, operations, strict=True)}
    return type("OperationsController", (Controller,), {"path": _typed(path), **handlers})


def _typed(path: str) -> str:
    """The path in Litestar's form: parameters arrive as text, and services convert them."""
    return PARAMETER.sub(lambda found: f"{{{found[1]}:{'path' if found[1] in WITH_SLASHES else 'str'}}}", path)


def _handler(operation: Operation, below: str) -> HTTPRouteHandler:
    async def handle(_: object, request: BoundedRequest, admin: AdminApi, **arguments: Any) -> Response[bytes]:
        return await _answer(operation, request, admin, arguments)

    parameters = list(_signature(operation))
    handle.__name__ = operation.name
    handle.__signature__ = inspect.Signature(parameters, return_annotation=operation.returns)  # type: ignore[attr-defined]
    handle.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": operation.returns}
    return HTTPRouteHandler(
        _typed(below),
        http_method=operation.method,  # type: ignore[arg-type]
        status_code=operation.status,
        opt={"operation": operation},
        operation_id=operation.name,
        summary=operation.summary,
        description=_description(operation),
        tags=[operation.module],
        response_description="Done.",
        responses={
            status: ResponseSpec(ErrorBody, description=text, generate_examples=False)
            for status, text in (REFUSALS | ({412: STALE_VERSION} if operation.versioned else {})).items()
        },
    )(handle)


async def _answer(
    operation: Operation, request: BoundedRequest, admin: AdminApi, arguments: dict[str, Any]
) -> Response[bytes]:
    api_request = AdminRequest(
        request_id=mint(),
        principal=request.user,
        url=f"{request.url.path}?{request.url.query}",
        body=b"" if operation.method == "GET" else await request.body(),
        idempotency_key=arguments.get("idempotency_key"),
        if_match=arguments.get("if_match"),
        arguments=arguments,
    )
    answer = await admin.run(operation, api_request)
    headers = {"x-request-id": api_request.request_id, "cache-control": "no-store", "x-content-type-options": "nosniff"}
    if answer.version is not None:
        headers["etag"] = f'"{answer.version}"'
    if answer.replayed:
        headers["idempotent-replayed"] = "true"
    return Response(answer.body, status_code=answer.status, headers=headers, media_type="application/json")


def _signature(operation: Operation) -> Iterator[inspect.Parameter]:
    """The handler's signature, from which Litestar derives the parameters to read and to document."""

    def parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)

    yield inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY, annotation=object)
    yield parameter("request", BoundedRequest)
    yield parameter("admin", NamedDependency[AdminApi])
    for name, kind in operation.parameters.items():
        documented = Documented(TEXT if kind is str else kind)
        yield parameter(name, Annotated[kind, PathParameter(), documented])
    if operation.query is not None:
        hints = get_type_hints(operation.query, include_extras=True)
        for field in msgspec.structs.fields(operation.query):
            several = takes_several(operation.query, field.name)
            documented = Documented(hints[field.name], None if field.default is msgspec.NODEFAULT else field.default)
            query = QueryParameter(name=field.name)
            yield parameter(
                IN_QUERY + field.name,
                Annotated[list[str] if several else Any, query, documented],
                () if several else None,
            )
    if operation.method == "POST":
        header = HeaderParameter(
            name="Idempotency-Key", description="For 24 hours, the same key returns the first response again."
        )
        yield parameter("idempotency_key", Annotated[Any, header, Documented(IDEMPOTENCY_KEY)], None)
    if operation.versioned:
        header = HeaderParameter(
            name="If-Match",
            description="The ETag that you read: the change is refused if the fleet is no longer at that version.",
        )
        yield parameter("if_match", Annotated[Any, header, Documented(ETAG)], None)
    if operation.body is not None:
        yield parameter("data", Annotated[operation.body, Body()])


def _description(operation: Operation) -> str:
    permission = f"Needs `{operation.permission.value}`." if operation.permission else "Any admin key."
    audience = " Only for the operating organization." if operation.operator_only else ""
    return f"{operation.description}\n\n{permission}{audience}".strip()
