"""Makes Litestar's route handlers from services: each a line in `controllers.py`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, get_type_hints
from uuid import UUID

import msgspec
from litestar import Response
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Body, HeaderParameter, PathParameter, QueryParameter
from msgspec import Meta

from gateway.admin.api import AdminApi, AdminRequest
from gateway.admin.endpoint import IN_QUERY, PARAMETER, Endpoint, Service, takes_several
from gateway.admin.request import BoundedRequest
from gateway.limits.levels import Level
from gateway.metering.journal.request_id import mint
from gateway.tenants.roles import Permission
from gateway.wire.errors import EVERY_OPERATION, ErrorBody

REFUSALS = {
    **EVERY_OPERATION,
    400: "The request cannot be understood: `error.param` names the field.",
    401: "No admin key, or one that opens nothing.",
    403: "The role does not allow it, or the tenant is disabled.",
    404: "There is no such thing, or it is another organization's.",
    409: "It contradicts what there is, or the Idempotency-Key was used otherwise.",
    413: "The body is too large.",
    503: "The database cannot be reached; try again.",
}
IDEMPOTENCY_KEY = Annotated[str, Meta(min_length=1, max_length=255, pattern="^[ -~]+$")]
TEXT = Annotated[str, Meta(min_length=1)]


class Documented(NamedTuple):
    """In an annotation: the type that stands in the OpenAPI document for what Litestar hands over as text."""

    kind: Any
    default: object = None


def route(
    method: str,
    path: str,
    service: Service,
    permission: Permission | None,
    *,
    deployment: bool = False,
    status: int = 0,
    level: Level | None = None,
    of: str = "",
) -> HTTPRouteHandler:
    """Litestar's handler for a service. status: 201 for a POST and 200 for the rest, unless given. level: for a service
    of every level, the one of this path; of: whose, where such a service's docstring says `a subject's`.
    """
    hints = get_type_hints(service, include_extras=True)
    positional = list(inspect.signature(service).parameters)[1:]
    summary, _, description = inspect.cleandoc(service.__doc__ or "").partition("\n\n")
    endpoint = Endpoint(
        name=service.__name__ if level is None else service.__name__.replace("_", f"_{level}_"),
        method=method,
        path=path,
        permission=permission,
        deployment=deployment,
        service=service,
        fixed={} if level is None else {"level": level},
        parameters={
            parameter: hints[argument] for parameter, argument in zip(PARAMETER.findall(path), positional, strict=False)
        },
        body=hints.get("body"),
        query=hints.get("query"),
        returns=hints["return"],
        status=status or (201 if method == "POST" else 200),
        summary=summary.replace("\n", " ").replace("a subject's", of).replace("A subject's", of[:1].upper() + of[1:]),
        description=description,
    )

    async def handle(_: object, request: BoundedRequest, admin: AdminApi, **arguments: Any) -> Response[bytes]:
        return await _answer(endpoint, request, admin, arguments)

    parameters = list(_signature(endpoint))
    handle.__name__ = endpoint.name
    handle.__signature__ = inspect.Signature(parameters, return_annotation=endpoint.returns)  # type: ignore[attr-defined]
    handle.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": endpoint.returns}
    return HTTPRouteHandler(
        PARAMETER.sub(r"{\1:str}", path),
        http_method=method,  # type: ignore[arg-type]
        status_code=endpoint.status,
        opt={"endpoint": endpoint},
        operation_id=endpoint.name,
        summary=endpoint.summary,
        description=_description(endpoint),
        response_description="Done.",
        responses={
            status: ResponseSpec(ErrorBody, description=text, generate_examples=False)
            for status, text in REFUSALS.items()
        },
    )(handle)


async def _answer(
    endpoint: Endpoint, request: BoundedRequest, admin: AdminApi, arguments: dict[str, Any]
) -> Response[bytes]:
    asked = AdminRequest(
        request_id=mint(),
        secret=request.secret,
        url=f"{request.url.path}?{request.url.query}",
        body=b"" if endpoint.method == "GET" else await request.body(),
        idempotency_key=arguments.get("idempotency_key"),
        arguments=arguments,
    )
    answer = await admin.run(endpoint, asked)
    headers = {"x-request-id": asked.request_id, "cache-control": "no-store"}
    if answer.replayed:
        headers["idempotent-replayed"] = "true"
    return Response(answer.body, status_code=answer.status, headers=headers, media_type="application/json")


def _signature(endpoint: Endpoint) -> Iterator[inspect.Parameter]:
    """What Litestar reads from a request, by the names it documents."""

    def parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)

    yield inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY, annotation=object)
    yield parameter("request", BoundedRequest)
    yield parameter("admin", NamedDependency[AdminApi])
    for name, kind in endpoint.parameters.items():
        documented = Documented(UUID if kind is UUID else TEXT)
        yield parameter(name, Annotated[kind, PathParameter(), documented])
    if endpoint.query is not None:
        hints = get_type_hints(endpoint.query, include_extras=True)
        for field in msgspec.structs.fields(endpoint.query):
            several = takes_several(endpoint.query, field.name)
            documented = Documented(hints[field.name], None if field.default is msgspec.NODEFAULT else field.default)
            query = QueryParameter(name=field.name)
            yield parameter(
                IN_QUERY + field.name,
                Annotated[list[str] if several else Any, query, documented],
                () if several else None,
            )
    if endpoint.method == "POST":
        header = HeaderParameter(
            name="Idempotency-Key", description="Send the same key again to get the first answer again, for 24 hours."
        )
        yield parameter("idempotency_key", Annotated[Any, header, Documented(IDEMPOTENCY_KEY)], None)
    if endpoint.body is not None:
        yield parameter("data", Annotated[endpoint.body, Body()])


def _description(endpoint: Endpoint) -> str:
    permission = f"Needs `{endpoint.permission.value}`." if endpoint.permission else "Any admin key."
    deployment = " Only for the operating organization." if endpoint.deployment else ""
    return f"{endpoint.description}\n\n{permission}{deployment}".strip()
