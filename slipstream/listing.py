"""Prints a command's list: a table for people, or one JSON object per line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click
import msgspec

from slipstream.table import table

Function = TypeVar("Function", bound=Callable[..., Any])
ItemT = TypeVar("ItemT")
STATES = "disabled", "active"


def json_option(function: Function) -> Function:
    """Add `--json`, passed as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")(function)


def show(
    items: Sequence[ItemT],
    columns: Mapping[str, Callable[[ItemT], object]],
    *,
    as_json: bool,
    empty: str = "",
    more: str = "",
) -> None:
    """Print the items. columns: the cell of an item, by the column's head. empty: the line instead of an empty table.
    more: the path of the request for the rest; empty if the list is complete."""
    if as_json:
        for each in items:
            print(msgspec.json.encode(each).decode())
        if more:  # a program reads the list as if it were complete
            click.echo(f"… and more: GET /admin/v1{more}", err=True)
        return
    rows: Iterable[Sequence[str]] = ([str(cell(each)) for cell in columns.values()] for each in items)
    print("\n".join(table(tuple(columns), rows)) if items or not empty else empty)
    if more:
        print(f"… and more: GET /admin/v1{more}")


def state_of(item: Any) -> str:
    """`active`, or `disabled`."""
    return STATES[item.disabled_at is None]


def names(values: Iterable[object] | None) -> str:
    """The names of a restriction; `all` without one."""
    return "all" if values is None else ", ".join(map(str, values)) or "none"
