"""Parts of an OpenAPI document: refusals, and schemas and parameters from the types that decode requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from gateway.wire.errors import ErrorBody

TEMPLATE = "#/components/schemas/{name}"


def schema(kind: Any) -> dict[str, Any]:
    """A type's schema. It refers to structs and enumerations by name."""
    (found,), _ = msgspec.json.schema_components([kind], ref_template=TEMPLATE)
    return dict(found)


def without_null(found: dict[str, Any]) -> dict[str, Any]:
    """A parameter's schema: a parameter is present or absent, and never null."""
    options = [option for option in found.get("anyOf", ()) if option != {"type": "null"}]
    if not options:
        return found
    return options[0] if len(options) == 1 else {"anyOf": options}


def header(kind: Any = str) -> dict[str, Any]:
    """A header of a response."""
    return {"schema": schema(kind)}


def parameters(path: str, hints: Mapping[str, Any], query: type[msgspec.Struct] | None) -> list[dict[str, Any]]:
    """Parameters of the path and of the query, which `query` decodes. hints: types of the path's, by name."""
    of_path = [
        {"name": name, "in": "path", "required": True, "schema": schema(hints[name])}
        for name in re.findall(r"{(\w+)}", path)
    ]
    types = {} if query is None else get_type_hints(query, include_extras=True)
    fields = () if query is None else msgspec.structs.fields(query)
    return of_path + [
        {
            "name": each.encode_name,
            "in": "query",
            "required": each.required,
            "schema": without_null(schema(types[each.name])) | _default(each),
        }
        for each in fields
    ]


def refusals(texts: Mapping[int, str]) -> dict[str, Any]:
    """Responses with these statuses and an ErrorBody each."""
    content = {"application/json": {"schema": schema(ErrorBody)}}
    return {str(status): {"description": text, "content": content} for status, text in texts.items()}


def _default(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    has_default = field.default not in (None, msgspec.NODEFAULT)
    return {"default": msgspec.to_builtins(field.default)} if has_default else {}
