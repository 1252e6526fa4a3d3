"""Values that cross between a program and its tests: plain data, each kind named, so that nothing of it can run."""

from __future__ import annotations

from typing import Any


def encode(value: Any) -> Any:
    """Plain data as JSON: [kind, content]. Subclasses become what they extend; numpy's numbers and arrays, Python's.

    Raises TypeError for everything else.
    """
    if value is None or isinstance(value, (bool, str)):
        return None if value is None else str(value) if isinstance(value, str) else bool(value)
    if isinstance(value, int):
        return ["int", hex(value)]
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, complex):
        return ["complex", [float.hex(value.real), float.hex(value.imag)]]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes(value).hex()]
    kinds: tuple[Any, ...] = (list, tuple, set, frozenset)
    for kind in kinds:
        if isinstance(value, kind):
            return [kind.__name__, [encode(one) for one in kind.__iter__(value)]]
    if isinstance(value, dict):
        return ["dict", [[encode(key), encode(one)] for key, one in dict.items(value)]]
    if hasattr(value, "tolist"):
        return encode(value.tolist())
    raise TypeError(f"{type(value).__name__} is no plain data")


def decode(value: Any) -> Any:
    """What `encode` was given."""
    if value is None or isinstance(value, (bool, str)):
        return value
    kind, content = value
    if kind == "int":
        return int(content, 0)
    if kind == "float":
        return float.fromhex(content)
    if kind == "complex":
        return complex(*map(float.fromhex, content))
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "dict":
        return {decode(key): decode(one) for key, one in content}
    kinds: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
    return kinds[kind]([decode(one) for one in content])
