"""Writes settings as TOML, for `config show` and for the file that `up` hands to its processes."""

from __future__ import annotations

from typing import Any

import msgspec
import tomli_w


def dump(struct: msgspec.Struct) -> str:
    """The struct as TOML that reads back to the same values. Fields that are None are left out: TOML has no null."""
    return tomli_w.dumps(_without_none(msgspec.to_builtins(struct)))


def value(setting: Any) -> str:
    """One value as it stands behind a setting's `=`, on one line."""
    return _inline(_without_none(msgspec.to_builtins(setting)))


def _inline(plain: Any) -> str:
    if isinstance(plain, dict):
        return f"{{ {', '.join(f'{name} = {_inline(inner)}' for name, inner in plain.items())} }}"
    if isinstance(plain, list):
        return f"[{', '.join(map(_inline, plain))}]"
    return tomli_w.dumps({"_": plain}).removeprefix("_ = ").rstrip("\n")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(inner) for name, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list | tuple) else value
