"""YAML with a reason after each value, for engines that read their settings from a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import msgspec

Scalar = bool | int | float | str | list[str] | list[int]


class Entry(msgspec.Struct, frozen=True):
    """One key. A tuple of entries is a nested mapping, and a dict is one on a single line."""

    name: str
    value: Scalar | dict[int, int] | tuple[Entry, ...]
    why: str = ""


def text_of(entries: Iterable[Entry]) -> str:
    """The file's text."""
    return "\n".join(_lines(entries, "")) + "\n"


def paths_of(entries: Iterable[Entry], before: str = "") -> Iterator[str]:
    """Every key with its parents, such as `kv_cache_config.dtype`."""
    for entry in entries:
        yield before + entry.name
        if isinstance(entry.value, tuple):
            yield from paths_of(entry.value, f"{before}{entry.name}.")


def _lines(entries: Iterable[Entry], indent: str) -> Iterator[str]:
    for entry in entries:
        why = f"  # {entry.why}" if entry.why else ""
        if isinstance(entry.value, tuple):
            yield f"{indent}{entry.name}:{why}"
            yield from _lines(entry.value, indent + "  ")
        else:
            yield f"{indent}{entry.name}: {_scalar(entry.value)}{why}"


def _scalar(value: Scalar | dict[int, int]) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {item}" for key, item in value.items()) + "}"
    return json.dumps(value)  # for these types, JSON is YAML
