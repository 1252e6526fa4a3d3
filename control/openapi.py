"""The OpenAPI document of the admin API. Litestar writes it, with msgspec's schemas, which match the decoder, and an
example for every operation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from litestar import Litestar
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, Schema, SecurityScheme
from litestar.plugins import OpenAPISchemaPlugin
from litestar.typing import FieldDefinition

from control.api.document import TEMPLATE, header, parameters, refusals, without_null
from control.api.events.route import EVENTS
from control.api.examples import example_of
from control.api.operation import Operation
from control.api.route_handlers import REFUSALS, Documented
from control.moved_paths import with_former
from control.openai_organization.operations import OPENAI_OPERATIONS, OPENAI_PREFIX, openai_operations
from control.operations import OPERATIONS, PREFIX, admin_operations
from gateway.wire.config import RequestConfig

ANSWERED = {"x-request-id": header()}
DESCRIPTION = """Organizations, projects, keys, members, limits, usage, prices, webhooks, the fleet and the audit log.

Send an admin key as `Authorization: Bearer sk-slip-admin-…`. A page of the console sends its session's cookie instead,
and with every request but GET the session's `X-CSRF-Token` (`GET /console/api/session`). Inference keys are refused
here, and admin keys by inference. POSTs may carry an `Idempotency-Key`. Lists are pages: pass `next_cursor` as
`cursor`. What belongs to another organization is not found (404)."""


@dataclass
class MsgspecSchema(Schema):
    """A schema that msgspec wrote."""

    document: dict[str, Any] = field(default_factory=dict)

    def to_schema(self) -> dict[str, Any]:
        """The document, unchanged."""
        return self.document


class MsgspecSchemas(OpenAPISchemaPlugin):
    """Litestar's schemas of parameters and bodies, written by msgspec; remembers the types for `components`."""

    def __init__(self) -> None:
        self._kinds: list[tuple[Any, Documented | None, dict[str, Any]]] = []

    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        """Whether the plugin handles this field: it handles all of them."""
        return True

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Schema:
        """Schema of the documented type, without null: a parameter is present or absent."""
        documented = next((each for each in field_definition.metadata if isinstance(each, Documented)), None)
        kind = field_definition.raw if documented is None else documented.kind
        document: dict[str, Any] = {}
        self._kinds.append((kind, documented, document))
        return MsgspecSchema(document=document)

    def components(self) -> dict[str, Any]:
        """All requested structs and enumerations, by name; fills the schemas that were returned earlier.

        One call handles all types, because msgspec separates two types of one name only if it gets both.
        """
        kinds = [kind for kind, _, _ in self._kinds]
        documents, components = msgspec.json.schema_components(kinds, ref_template=TEMPLATE)
        for (_, documented, returned), document in zip(self._kinds, documents, strict=True):
            returned.update(document if documented is None else without_null(document))
            if documented is not None and documented.default is not None:
                returned["default"] = msgspec.to_builtins(documented.default)
        return components


def admin_document() -> bytes:
    """The document as JSON."""
    schemas = MsgspecSchemas()
    config = OpenAPIConfig(
        title="Slipstream admin API",
        version="1",
        description=DESCRIPTION,
        components=Components(security_schemes={"adminKey": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"adminKey": []}],
    )
    limits = RequestConfig()
    routers = [admin_operations(limits), openai_operations(limits)]
    app = Litestar(routers, openapi_config=config, plugins=[schemas], logging_config=None)
    document = app.openapi_schema.to_schema()
    document["components"]["schemas"] = schemas.components()
    for prefix, operations in ((PREFIX, OPERATIONS), (OPENAI_PREFIX, OPENAI_OPERATIONS)):
        for operation in operations:
            _illustrate(document["paths"][prefix + operation.path][operation.method.lower()], operation)
    document["paths"] = {**with_former(document["paths"]), PREFIX + EVENTS.path: {"get": _events()}}
    return msgspec.json.encode(document)


def _events() -> dict[str, Any]:
    """The only operation whose response is a stream."""
    example = 'id: 5f1f6f0a-7\nevent: news\ndata: {"topic":"usage"}\n\n'
    done = {"description": "Done.", "headers": ANSWERED, "content": {"text/event-stream": {"example": example}}}
    last = {"name": "Last-Event-ID", "in": "header", "required": False, **header()}
    return {
        "operationId": EVENTS.name,
        "tags": ["events"],
        "summary": EVENTS.summary,
        "description": f"{EVENTS.description}\n\nEach topic needs the permission of its own endpoints.",
        "parameters": [*parameters(EVENTS.path, {}, EVENTS.query), last],
        "responses": {"200": done, **refusals(REFUSALS)},
    }


def _illustrate(documented: dict[str, Any], operation: Operation) -> None:
    """Add examples of the response and the body, the response's headers, and the query's required parameters.

    To Litestar, all of the query is optional: the operation's own decoder refuses a missing parameter by name.
    """
    fields = msgspec.structs.fields(operation.query) if operation.query else ()
    needed = {each.encode_name for each in fields if each.required}
    for parameter in documented.get("parameters", ()):
        if parameter["in"] == "query":
            parameter["required"] = parameter["name"] in needed
    answer = documented["responses"][str(operation.status)]
    answer["headers"] = ANSWERED
    answer["content"]["application/json"]["examples"] = {"example": {"value": example_of(operation.returns)}}
    if operation.body is not None:
        body = documented["requestBody"]["content"]["application/json"]
        body["examples"] = {"example": {"value": example_of(operation.body)}}
