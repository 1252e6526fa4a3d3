"""Distinguishes Tabby's bodies from OpenAI's at the same path."""

from __future__ import annotations

import msgspec


class _Peek(msgspec.Struct):
    segments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_peek = msgspec.json.Decoder(_Peek).decode


def has_segments(body: bytes) -> bool:
    """Whether the body is an object with `segments`. Only the few bodies that contain the word are decoded; inside a
    JSON string, its quotes would be escaped."""
    if b'"segments"' not in body:
        return False
    try:
        return _peek(body).segments is not msgspec.UNSET
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
