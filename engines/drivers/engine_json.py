"""Decodes what an engine sent as JSON. Whatever it is, nothing is raised but EngineFailed."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from contracts.errors import EngineFailed

T = TypeVar("T")
UNREADABLE_LOAD = "The engine's load report cannot be read."
"""Error for an invalid report, in every dialect."""

_decode = msgspec.json.Decoder().decode


def decode_engine_json(data: bytes, type: type[T], failure: str) -> T:
    """data as a `type`. failure: the message of the EngineFailed for invalid data. msgspec raises DecodeError for most
    of it, but UnicodeDecodeError for a string that is not UTF-8, and RecursionError for deep nesting."""
    try:
        return _decode(data) if type is object else msgspec.json.decode(data, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise EngineFailed(failure) from None
