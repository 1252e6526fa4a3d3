"""Recognises small JSON schemas of plain keywords, which compile within milliseconds.

Patterns, formats, numeric bounds and multiples, repetition counts, references and intersections are expensive and never
plain. A schema with a keyword that is not listed here is not plain, so new keywords are tried before they are trusted.
"""

from __future__ import annotations

from typing import Any

PLAIN_BYTES = 4_096
_NOTES = frozenset({"title", "description"})
_KEYWORDS = frozenset({"type", "properties", "required", "items", "additionalProperties", "enum", "const"})


def is_plain(schema: Any, size_bytes: int) -> bool:
    """Whether a schema is plain. size_bytes: its size as JSON."""
    return size_bytes <= PLAIN_BYTES and _plain(schema)


def _plain(schema: Any) -> bool:
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, dict):
        return False
    names = schema.keys() - _NOTES
    if names == {"anyOf"}:
        # alone, because with other keywords it would be an intersection
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
