"""What a decoded request of llama.cpp's API asks for, and the errors of fields that are not served."""

from __future__ import annotations

from contracts.errors import InvalidField, UnsupportedField
from gateway.wire.llama_cpp.schema import REFUSED, Common


def require_served(request: Common) -> None:
    """Raises a RequestError that names the field."""
    for name in REFUSED:
        if getattr(request, name):
            raise UnsupportedField(
                f"'{name}' is not available on this deployment: leave it out, or send it empty or off.", param=name
            )
    if request.seed is not None and request.seed < 0:
        request.seed = None
    for one, other in (("n_predict", "max_tokens"), ("n_cmpl", "n")):
        if getattr(request, one) is not None and getattr(request, other) not in (None, getattr(request, one)):
            raise InvalidField(f"'{one}' and '{other}' mean the same and differ: give one of them.", param=other)


def choices(request: Common) -> int:
    """Number of requested completions."""
    return request.n_cmpl or request.n or 1


def predict(request: Common) -> int | None:
    """Requested output limit; None: the model's default; 0: no tokens."""
    asked = request.n_predict if request.n_predict is not None else request.max_tokens
    return None if asked is None or asked < 0 else asked
