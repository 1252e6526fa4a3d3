"""Decodes what an engine sent as JSON. Whatever it is, nothing is raised but EngineFailed."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from contracts.errors import EngineFailed

T = TypeVar("T")
UNREADABLE_LOAD = "The engine's load report cannot be read."
"""What is told of such a report in every dialect."""


def decode_engine_json(data: bytes, type: type[T], failure: str) -> T:
    """data as a `type`. failure: the sentence of the EngineFailed that is raised for what is none.

    msgspec raises DecodeError for most of that, but UnicodeDecodeError for bytes in a string that are no UTF-8, and
    RecursionError for what is nested without end.
    """
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise EngineFailed(failure) from None
