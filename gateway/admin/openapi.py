"""OpenAPI 3.1 of the admin API, from the endpoints themselves. Schemas are msgspec's, so what they say is what the
decoder does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, get_type_hints
from uuid import UUID

import msgspec

from gateway.admin.endpoint import Endpoint
from gateway.wire.errors import EVERY_OPERATION, ErrorBody

TEMPLATE = "#/components/schemas/{name}"
ERROR = {"$ref": TEMPLATE.format(name="ErrorBody")}

DESCRIPTION = """Organizations, projects, keys, members, limits, usage, prices, webhooks and the audit log.

Send an admin key as `Authorization: Bearer sk-slip-admin-…`. Inference keys are refused here, and admin keys by
inference. POSTs may carry an `Idempotency-Key`. Lists are pages: pass `next_cursor` as `cursor`. What belongs to
another organization is not found (404)."""

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


def admin_document(endpoints: Iterable[Endpoint], prefix: str) -> bytes:
    """The document as JSON."""
    endpoints = list(endpoints)
    types = [kind for endpoint in endpoints for kind in (endpoint.body, endpoint.returns) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, ErrorBody], ref_template=TEMPLATE)
    schema_of = {_name(kind): schema for kind, schema in zip(types, schemas, strict=False)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, schema_of)
        paths.setdefault(prefix + endpoint.path, {})[endpoint.method.lower()] = operation
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Slipstream admin API", "version": "1", "description": DESCRIPTION},
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"adminKey": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{"adminKey": []}],
        }
    )


def _operation(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "tags": [endpoint.module],
        "summary": endpoint.summary,
        "description": _description(endpoint),
        "parameters": list(_parameters(endpoint)),
        "responses": {
            str(endpoint.status): {
                "description": "Done.",
                "headers": {"x-request-id": {"schema": {"type": "string"}}},
                "content": {"application/json": {"schema": schema_of[_name(endpoint.returns)]}},
            },
            **{
                str(status): {"description": text, "content": {"application/json": {"schema": ERROR}}}
                for status, text in REFUSALS.items()
            },
        },
    }
    if endpoint.body is not None:
        body = {"application/json": {"schema": schema_of[_name(endpoint.body)]}}
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def _description(endpoint: Endpoint) -> str:
    permission = f"Needs `{endpoint.permission.value}`." if endpoint.permission else "Any admin key."
    deployment = " Only for the operating organization." if endpoint.deployment else ""
    return f"{endpoint.description}\n\n{permission}{deployment}".strip()


def _parameters(endpoint: Endpoint) -> Iterator[dict[str, Any]]:
    for name, kind in endpoint.parameters.items():
        schema = {"type": "string", "format": "uuid"} if kind is UUID else {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    if endpoint.query is not None:
        hints = get_type_hints(endpoint.query, include_extras=True)
        for field in msgspec.structs.fields(endpoint.query):
            schema = _without_null(msgspec.json.schema(hints[field.name]))
            if field.default is not msgspec.NODEFAULT and field.default is not None:
                schema["default"] = msgspec.to_builtins(field.default)
            yield {"name": field.encode_name, "in": "query", "required": field.required, "schema": schema}
    if endpoint.method == "POST":
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "Send the same key again to get the first answer again, for 24 hours.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        }


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: a parameter is there or not."""
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if not options:
        return schema
    return options[0] if len(options) == 1 else {"anyOf": options}


def _name(kind: Any) -> str:
    return str(kind)
