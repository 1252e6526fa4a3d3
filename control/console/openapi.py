"""Adds the console's own routes to the admin API's OpenAPI document, so that one client is generated from both."""

from __future__ import annotations

from typing import Annotated, Any, get_type_hints

import msgspec

from control.api.document import TEMPLATE, header, parameters, refusals, schema
from control.api.examples import example_of
from control.console.routes import OPERATIONS, PREFIX, ConsoleOperation
from gateway.wire.errors import EVERY_OPERATION, ErrorBody

TAG = "console"
REFUSALS = {
    **EVERY_OPERATION,
    400: "The request cannot be understood, or the link was used: `error.param` names the field.",
    401: "Not signed in, or sign-in failed; `error.code` gives the reason.",
    403: "A page of another site sent the request, the CSRF token is not this session's, or the tenant is disabled.",
    404: "The object does not exist, or there is no console here.",
    409: "It conflicts with existing objects.",
    413: "The body is too large.",
    429: "Too many attempts failed, or this address has too many connections open; wait for `Retry-After`.",
    503: "The database cannot be reached, or too many people sign in at once; try again.",
}
CSRF = {
    "name": "X-CSRF-Token",
    "in": "header",
    "required": True,
    "description": "`csrf_token` of the newest ConsoleSession.",
    **header(Annotated[str, msgspec.Meta(min_length=1)]),
}


def with_console(document: bytes) -> bytes:
    """The document as JSON, with these paths and their schemas."""
    kinds = [kind for each in OPERATIONS for kind in (each.body, each.returns) if kind not in (None, str)]
    _, components = msgspec.json.schema_components([*kinds, ErrorBody], ref_template=TEMPLATE)
    whole = msgspec.json.decode(document)
    for name, found in components.items():
        if whole["components"]["schemas"].setdefault(name, found) != found:
            raise ValueError(f"two structs of the API are called {name}")
    for each in OPERATIONS:
        whole["paths"].setdefault(PREFIX + each.path, {})[each.method.lower()] = _documented(each)
    return msgspec.json.encode(whole)


def _documented(each: ConsoleOperation) -> dict[str, Any]:
    found = parameters(each.path, get_type_hints(each.service), each.query)
    if each.signed_in and each.method != "GET":
        found.append(CSRF)
    success: dict[str, Any] = {"description": "Go there.", "headers": {"location": header()}}
    if not each.redirects:
        success = {"description": "Done.", "headers": {"x-request-id": header()}, "content": _content(each.returns)}
    documented: dict[str, Any] = {
        "operationId": each.name,
        "tags": [TAG],
        "summary": each.summary,
        "security": [],
        "responses": {"302" if each.redirects else "200": success, **refusals(REFUSALS)},
    }
    if each.description:
        documented["description"] = each.description
    if found:
        documented["parameters"] = found
    if each.body is not None:
        documented["requestBody"] = {"required": True, "content": _content(each.body)}
    return documented


def _content(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema(kind), "examples": {"example": {"value": example_of(kind)}}}}
