"""Recognises JSON schemas that compile within milliseconds: small ones of plain keywords.

Expensive features are never plain: patterns, formats, numeric bounds and multiples, repetition counts, references,
intersections. A keyword that is not named here makes a schema not plain, so a new one is tried before it is trusted.
"""

from __future__ import annotations

from typing import Any

PLAIN_BYTES = 4_096
_NOTES = frozenset({"title", "description"})
_KEYWORDS = frozenset({"type", "properties", "required", "items", "additionalProperties", "enum", "const"})


def is_plain(schema: Any, size_bytes: int) -> bool:
    """size_bytes: of the schema as JSON."""
    return size_bytes <= PLAIN_BYTES and _plain(schema)


def _plain(schema: Any) -> bool:
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, dict):
        return False
    names = schema.keys() - _NOTES
    if names == {"anyOf"}:
        # alone: with others it would be an intersection
        return isinstance(schema["anyOf"], list) and all(map(_plain, schema["anyOf"]))
    properties, values = schema.get("properties", {}), schema.get("enum", [])
    return (
        names <= _KEYWORDS
        and isinstance(properties, dict)
        and all(map(_plain, properties.values()))
        and _plain(schema.get("items", True))
        and _plain(schema.get("additionalProperties", True))
        and isinstance(values, list)
        and not any(isinstance(value, dict | list) for value in [*values, schema.get("const")])
    )
