"""Marks a field of a settings struct as a constant: it has a range and a reason like other fields, but no settings file
can set it. Tests can pass a struct with another value."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar, get_origin

SINCE = "0.2"
"""The release in which the present constants stopped being settings."""


class _Constant:
    """The marker."""


FIXED: Final = _Constant()
T = TypeVar("T")
Fixed = Annotated[T, FIXED]
"""Usage: `timeout_s: Fixed[float] = 2.0`. On a field whose type is a struct, it fixes all fields of that struct."""


def is_fixed(annotation: Any) -> bool:
    """Whether a field of this type is a constant."""
    return get_origin(annotation) is Annotated and FIXED in annotation.__metadata__
