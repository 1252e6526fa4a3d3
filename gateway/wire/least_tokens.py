"""Checks the minimum length of an answer, which not all engines support."""

from __future__ import annotations

from contracts.errors import InvalidField, UnsupportedField
from gateway.wire.prepared import Target


def require_least(min_tokens: int, max_tokens: int, target: Target, param: str = "min_tokens") -> int:
    """`min_tokens`. param: the client's field.

    Raises UnsupportedField if an engine of the model does not support it, InvalidField if it exceeds the output limit.
    """
    if min_tokens and not target.capabilities.min_tokens:
        raise UnsupportedField(
            f"'{param}' requests a minimum length, which this model's engines do not support. Leave it out.",
            param=param,
        )
    if min_tokens > max_tokens:
        raise InvalidField(
            f"'{param}' is {min_tokens}, but at most {max_tokens} tokens may be generated. Lower it, or raise "
            "'max_tokens'.",
            param=param,
        )
    return min_tokens
