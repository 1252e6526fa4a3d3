"""Counts a text's structure one byte after the other: what `gateway.wire.body_shape` does with whole pieces."""

from __future__ import annotations

import msgspec


class Naive(msgspec.Struct):
    """Of a text up to its first illegal backslash or its first closing bracket too many: no decoder goes further."""

    containers: int = 0
    members: int = 0
    """Commas and colons."""
    depth: int = 0
    deepest: int = 0


def naive_shape(text: bytes) -> Naive:
    """What the text has outside of strings."""
    found, inside, escaped = Naive(), False, False
    for byte in text:
        character = chr(byte)
        if inside:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                inside = False
        elif character == '"':
            inside = True
        elif character in "[{":
            found.containers += 1
            found.depth += 1
            found.deepest = max(found.deepest, found.depth)
        elif character in "]}":
            found.depth -= 1
        elif character in ",:":
            found.members += 1
    return found
