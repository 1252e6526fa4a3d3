"""Decodes JSON from an engine. Invalid data of any kind raises EngineFailed and nothing else."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from contracts.errors import EngineFailed

T = TypeVar("T")
UNREADABLE_LOAD = "The engine's load report cannot be read."
"""Error for an invalid report, in every dialect."""

_decode = msgspec.json.Decoder().decode


def decode_engine_json(data: bytes, type: type[T], failure: str) -> T:
    """Decode `data` as a `type`. failure: the message of the EngineFailed for invalid data. For most such data, msgspec
    raises DecodeError; for a string that is not UTF-8, UnicodeDecodeError; for deep nesting, RecursionError."""
    try:
        return _decode(data) if type is object else msgspec.json.decode(data, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise EngineFailed(failure) from None
