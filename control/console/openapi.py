"""The console's own routes in the admin API's OpenAPI document, so that one client is generated of both."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from control.api.examples import example_of
from control.console.routes import OPERATIONS, PREFIX, ConsoleOperation
from gateway.wire.errors import EVERY_OPERATION, ErrorBody

TEMPLATE = "#/components/schemas/{name}"
TAG = "console"
REFUSALS = {
    **EVERY_OPERATION,
    400: "The request cannot be understood, or the link was used: `error.param` names the field.",
    401: "Not signed in, or sign-in failed; `error.code` gives the reason.",
    403: "A page of another site asks, the CSRF token is not this session's, or the tenant is disabled.",
    404: "There is no such thing, or no console here.",
    409: "It contradicts existing objects.",
    413: "The body is too large.",
    429: "Too many attempts failed, or this address has too many connections open; wait for `Retry-After`.",
    503: "The database cannot be reached, or too many people sign in at once; try again.",
}
CSRF = {
    "name": "X-CSRF-Token",
    "in": "header",
    "required": True,
    "description": "`csrf_token` of the newest ConsoleSession.",
    "schema": {"type": "string", "minLength": 1},
}


def with_console(document: bytes) -> bytes:
    """The document as JSON, with these paths and their schemas."""
    kinds = [kind for each in OPERATIONS for kind in (each.body, each.returns) if kind not in (None, str)]
    _, components = msgspec.json.schema_components([*kinds, ErrorBody], ref_template=TEMPLATE)
    whole = msgspec.json.decode(document)
    for name, schema in components.items():
        if whole["components"]["schemas"].setdefault(name, schema) != schema:
            raise ValueError(f"two structs of the API are called {name}")
    for each in OPERATIONS:
        whole["paths"].setdefault(PREFIX + each.path, {})[each.method.lower()] = _documented(each)
    return msgspec.json.encode(whole)


def _documented(each: ConsoleOperation) -> dict[str, Any]:
    parameters = [_path_parameter(name) for name in re.findall(r"{(\w+)}", each.path)]
    if each.query is not None:
        parameters += [_query_parameter(field) for field in msgspec.structs.fields(each.query)]
    if each.signed_in and each.method != "GET":
        parameters.append(CSRF)
    done: dict[str, Any] = {"description": "Go there.", "headers": {"location": {"schema": {"type": "string"}}}}
    if not each.redirects:
        done = {
            "description": "Done.",
            "headers": {"x-request-id": {"schema": {"type": "string"}}},
            "content": _content(each.returns),
        }
    documented: dict[str, Any] = {
        "operationId": each.name,
        "tags": [TAG],
        "summary": each.summary,
        "security": [],
        "responses": {
            "302" if each.redirects else "200": done,
            **{
                str(status): {"description": text, "content": {"application/json": {"schema": _schema(ErrorBody)}}}
                for status, text in REFUSALS.items()
            },
        },
    }
    if each.description:
        documented["description"] = each.description
    if parameters:
        documented["parameters"] = parameters
    if each.body is not None:
        documented["requestBody"] = {"required": True, "content": _content(each.body)}
    return documented


def _content(kind: Any) -> dict[str, Any]:
    media = {"schema": _schema(kind), "examples": {"example": {"value": example_of(kind)}}}
    return {"application/json": media}


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=TEMPLATE)
    return dict(schema)


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}


def _query_parameter(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    schema = _schema(field.type)
    options = [each for each in schema.get("anyOf", [schema]) if each != {"type": "null"}]
    return {"name": field.encode_name, "in": "query", "required": False, "schema": options[0]}
