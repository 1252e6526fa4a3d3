"""Refuses a path with a parameter that names nothing."""

from __future__ import annotations

from enum import EnumType
from typing import Any

from litestar import Request
from litestar.exceptions import ValidationException

from contracts.errors import NotFound
from contracts.misfit import shortened


def noun(parameter: str) -> str:
    """The kind of thing that the parameter names, in words."""
    return parameter.removesuffix("_id").replace("_", " ")


def refusal_of(error: ValidationException, request: Request[Any, Any, Any]) -> NotFound:
    """Translate Litestar's error. Litestar converts ids and enumerations in a path; other values name no resource."""
    problems: Any = error.extra
    name = problems[0]["key"]
    kind: Any = request.route_handler.parsed_fn_signature.parameters[name].annotation
    known = f"there are: {', '.join(kind)}" if isinstance(kind, EnumType) else "ids are UUIDs"
    return NotFound(f"There is no {noun(name)} {shortened(request.path_params[name])!r}: {known}.")
