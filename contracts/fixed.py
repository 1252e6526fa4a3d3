"""Marks a field of a settings struct as a constant: it has a range and a reason like its neighbours, and no settings
file sets it. Tests pass a struct with another value.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar, get_origin

SINCE = "0.2"
"""The release in which the present constants stopped being settings."""


class _Constant:
    """The mark."""


FIXED: Final = _Constant()
T = TypeVar("T")
Fixed = Annotated[T, FIXED]
"""`timeout_s: Fixed[float] = 2.0`; of a struct: all of its fields."""


def is_fixed(annotation: Any) -> bool:
    """Whether a field of this type is a constant."""
    return get_origin(annotation) is Annotated and FIXED in annotation.__metadata__
