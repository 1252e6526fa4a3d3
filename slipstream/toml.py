"""Writes settings as TOML, for `config show` and for the file that `up` hands to its processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec


def dump(struct: msgspec.Struct) -> str:
    """The struct as TOML that reads back to the same values. Fields that are None are left out."""
    return "\n".join(_table(msgspec.to_builtins(struct), "")).strip() + "\n"


def _table(table: dict[str, Any], trail: str) -> Iterator[str]:
    """Plain values first: TOML would take what follows a section header as part of that section."""
    for name, value in table.items():
        if value is not None and not _is_section(value):
            yield f"{_key(name)} = {_value(value)}"
    for name, value in table.items():
        dotted = f"{trail}{_key(name)}"
        if isinstance(value, dict):
            yield from ("", f"[{dotted}]", *_table(value, f"{dotted}."))
        elif _is_section(value):
            for entry in value:
                yield from ("", f"[[{dotted}]]", *_table(entry, f"{dotted}."))


def _is_section(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list | tuple) and any(isinstance(entry, dict) for entry in value)
    )


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    return repr(value)


def _text(text: str) -> str:
    # JSON's escapes are all TOML's too; DEL is the one character that JSON leaves bare and TOML forbids.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
