"""Client bytes to llama.cpp's requests, with errors that name the field."""

from __future__ import annotations

import msgspec

from contracts.errors import InvalidField, UnsupportedField
from gateway.wire.decode import NULL_IS_ABSENCE, decode
from gateway.wire.llama_cpp.schema import REFUSED, Common, InfillRequest, LlamaCompletionRequest

NOT_PART = "is not a field of llama.cpp's that is known here."


class Decoder:
    """Holds the compiled msgspec decoders. Give the body's bytes to a `BodyShape` first."""

    def __init__(self) -> None:
        self._infill = msgspec.json.Decoder(InfillRequest)
        self._completion = msgspec.json.Decoder(LlamaCompletionRequest)

    def infill(self, body: bytes) -> InfillRequest:
        """Raises a RequestError that names the field."""
        request = decode(self._infill, body, InfillRequest, (), NOT_PART, without_effect=NULL_IS_ABSENCE)
        _require_served(request)
        return request

    def completion(self, body: bytes) -> LlamaCompletionRequest:
        """Raises a RequestError that names the field."""
        request = decode(self._completion, body, LlamaCompletionRequest, (), NOT_PART, without_effect=NULL_IS_ABSENCE)
        _require_served(request)
        return request


def _require_served(request: Common) -> None:
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
