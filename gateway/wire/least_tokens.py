"""A least length of an answer, where the engines of the model can be asked for one."""

from __future__ import annotations

from contracts.errors import InvalidField, UnsupportedField
from gateway.wire.prepared import Target


def require_least(min_tokens: int, max_tokens: int, target: Target, param: str = "min_tokens") -> int:
    """`min_tokens`. param: the client's field.

    Raises UnsupportedField if not all engines of the model take one, InvalidField for more than the output limit.
    """
    if min_tokens and not target.capabilities.min_tokens:
        raise UnsupportedField(
            f"'{param}' requests a minimum length, which this model's engines do not support. Leave it out.",
            param=param,
        )
    if min_tokens > max_tokens:
        raise InvalidField(
            f"'{param}' is {min_tokens}, and at most {max_tokens} tokens may be generated. Lower it, or raise "
            "'max_tokens'.",
            param=param,
        )
    return min_tokens
