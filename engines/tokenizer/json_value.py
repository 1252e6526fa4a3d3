"""Walks a client's JSON values without recursion, to find their size and all texts in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from contracts.errors import InvalidField

MAX_VALUES = 200_000
"""Parsing or writing this many values holds the interpreter lock for some 60 ms, which stalls all streams."""
MAX_DEPTH = 128
"""Templates, `json` and pydantic recurse, and fail at a depth of some hundreds."""


class JsonBounds(msgspec.Struct, frozen=True):
    """Limits on the JSON of one prompt. The gateway takes them from its settings (`gateway.requests`)."""

    max_depth: int = MAX_DEPTH
    """Deepest nesting of lists and objects."""
    max_values: int = MAX_VALUES
    """Most values in total, including lists and objects."""


def require_bounded(value: Any, param: str, bounds: JsonBounds) -> None:
    """Raise InvalidField if the value exceeds the limits."""
    count = 0
    open_values: list[Iterator[Any]] = [iter((value,))]
    while open_values:
        for inner in open_values[-1]:
            count += 1
            if isinstance(inner, dict | list | tuple):
                open_values.append(iter(inner.values() if isinstance(inner, dict) else inner))
                break
        else:
            open_values.pop()
        if count > bounds.max_values:
            raise InvalidField(
                f"'{param}' holds more than {bounds.max_values} JSON values, which is the limit.", param=param
            )
        if len(open_values) - 1 > bounds.max_depth:
            raise _too_deep(param, bounds)


def texts(value: Any) -> list[str]:
    """All texts in a value, including keys, in no particular order."""
    found: list[str] = []
    left = [value]
    while left:
        inner = left.pop()
        if isinstance(inner, str):
            found.append(inner)
        elif isinstance(inner, dict):
            left.extend(inner)
            left.extend(inner.values())
        elif isinstance(inner, list | tuple):
            left.extend(inner)
    return found


def size_up_to(value: Any, most_bytes: int, value_bytes: int = 1) -> int:
    """Bytes of a value's texts and digits, plus `value_bytes` for every value. Counting stops once the size exceeds
    `most_bytes`."""
    size = 0
    left = [value]
    while left and size <= most_bytes:
        inner = left.pop()
        if isinstance(inner, str):
            if inner.isascii() or len(inner) > most_bytes - size:
                size += len(inner)
            else:
                size += len(inner.encode("utf-8", "surrogatepass"))
        elif isinstance(inner, dict | list | tuple):
            size += len(inner) * value_bytes
            if size <= most_bytes:
                left.extend(inner)
                left.extend(inner.values() if isinstance(inner, dict) else ())
        elif isinstance(inner, int):
            size += inner.bit_length() // 3
    return size


def separators(text: str) -> int:
    """The number of commas and opening brackets, which bounds the number of values in a JSON text."""
    return text.count(",") + text.count("[") + text.count("{")


def parsed_arguments(text: str, param: str, bounds: JsonBounds) -> dict[str, Any]:
    """The arguments of a tool call as an object, for templates. Empty text, which several engines write, is `{}`.

    Raises InvalidField for text that is not a JSON object, and for an object beyond the limits of `require_bounded`.
    """
    if text.strip() in ("", "null"):
        return {}
    if separators(text) > bounds.max_values:
        raise InvalidField(
            f"'{param}' holds more than {bounds.max_values} commas and brackets, which is the limit.",
            param=param,
        )
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    except RecursionError:
        raise _too_deep(param, bounds) from None
    require_bounded(value, param, bounds)
    if not isinstance(value, dict):
        raise InvalidField(
            f"'{param}' is not a JSON object. Send the call's arguments as an object; {{}} for a call without any.",
            param=param,
        )
    return value


def _too_deep(param: str, bounds: JsonBounds) -> InvalidField:
    return InvalidField(
        f"'{param}' is nested more than {bounds.max_depth} levels deep, which is the limit.", param=param
    )
