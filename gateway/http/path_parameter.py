"""The refusal of a path with a parameter that names nothing."""

from __future__ import annotations

from typing import Any

from litestar import Request
from litestar.exceptions import ValidationException

from contracts.errors import NotFound
from contracts.misfit import shortened


def noun(parameter: str) -> str:
    """The kind of thing that the parameter names, in words."""
    return parameter.removesuffix("_id").replace("_", " ")


def refusal_of(error: ValidationException, request: Request[Any, Any, Any]) -> NotFound:
    """Litestar's error as ours. It converts only ids in a path: an invalid UUID names no resource."""
    problems: Any = error.extra
    name = problems[0]["key"]
    return NotFound(f"There is no {noun(name)} {shortened(request.path_params[name])!r}: ids are UUIDs.")
