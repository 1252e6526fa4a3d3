"""Writes settings as TOML, for `config show` and for the file that `up` writes for its processes."""

from __future__ import annotations

from typing import Any

import msgspec
import tomli_w

from contracts.fixed import is_fixed


def dump(struct: msgspec.Struct) -> str:
    """The struct as TOML that loads to the same values. It has no constants and no fields that are None: TOML has no
    null."""
    return tomli_w.dumps(_without_none(_settable(struct, msgspec.to_builtins(struct))))


def value(setting: Any) -> str:
    """One value as TOML on one line, as after a setting's `=`."""
    return _inline(_without_none(msgspec.to_builtins(setting)))


def _settable(typed: Any, plain: Any) -> Any:
    """A value without its constants. plain: the same value as builtins."""
    if isinstance(typed, msgspec.Struct):
        return {
            field.encode_name: _settable(getattr(typed, field.name), plain[field.encode_name])
            for field in msgspec.structs.fields(typed)
            if field.encode_name in plain and not is_fixed(field.type)
        }
    return [_settable(*pair) for pair in zip(typed, plain, strict=True)] if isinstance(typed, list | tuple) else plain


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
