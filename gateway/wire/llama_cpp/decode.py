"""Interprets decoded requests of llama.cpp's API, and refuses fields that are not served."""

from __future__ import annotations

from contracts.errors import InvalidField, UnsupportedField
from gateway.wire.llama_cpp.schema import REFUSED, Common


def require_served(request: Common) -> None:
    """Raise a RequestError for a field that is not served, and drop a negative seed."""
    for name in REFUSED:
        if getattr(request, name):
            raise UnsupportedField(
                f"'{name}' is not available on this deployment. Leave it out, or send it empty or off.", param=name
            )
    if request.seed is not None and request.seed < 0:
        request.seed = None
    for field, alias in (("n_predict", "max_tokens"), ("n_cmpl", "n")):
        if getattr(request, field) is not None and getattr(request, alias) not in (None, getattr(request, field)):
            raise InvalidField(
                f"'{field}' and '{alias}' mean the same, but have different values. Send one of them.", param=alias
            )


def choices(request: Common) -> int:
    """Number of requested completions."""
    return request.n_cmpl or request.n or 1


def predict(request: Common) -> int | None:
    """Requested output limit; None for the model's default, 0 for no tokens."""
    requested = request.n_predict if request.n_predict is not None else request.max_tokens
    return None if requested is None or requested < 0 else requested
