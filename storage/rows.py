"""Runs SQLAlchemy Core on asyncpg. Statements use the tables of the migrations, and run on the connection that holds
the transaction, so that a change, its audit rows and the kept answer commit together.

A struct's fields define its columns: `columns_of` selects them, `record_of` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import asyncpg
import msgspec
from sqlalchemy import ClauseElement, ColumnElement, FromClause, true
from sqlalchemy.dialects.postgresql.asyncpg import dialect

ItemT = TypeVar("ItemT")
_DIALECT = dialect()  # type: ignore[no-untyped-call]
CUSTOM_PLANS = "SELECT set_config('plan_cache_mode', 'force_custom_plan', true)"
"""For a transaction with a statement whose values decide how much it reads. After some runs, PostgreSQL would use a
plan for any values, with which such a report costs several times as much."""


def columns_of(kind: type, *tables: FromClause, **computed: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """A struct's fields as columns: the computed ones, and the others from the first table with the name."""
    return [
        computed[name].label(name) if name in computed else next(table.c[name] for table in tables if name in table.c)
        for name in kind.__struct_fields__  # type: ignore[attr-defined]
    ]


def record_of(kind: type[ItemT], row: asyncpg.Record) -> ItemT:
    """Convert a row to a struct with the same names."""
    return msgspec.convert(dict(row), kind)


def json_of(value: Any) -> Any:
    """A JSON column's value: connections of the admin API decode it, those of workers do not."""
    return msgspec.json.decode(value) if isinstance(value, str) else value


def equal(column: ColumnElement[Any], value: object | None) -> ColumnElement[bool]:
    """A list filter: the column has the value. None does not filter."""
    return true() if value is None else column == value


def is_set(column: ColumnElement[Any], wanted: bool | None) -> ColumnElement[bool]:
    """A list filter: the column is set (True), or is null (False). None does not filter."""
    return true() if wanted is None else column.is_not(None) if wanted else column.is_(None)


def sorted_unique(values: Iterable[str] | None) -> list[str] | None:
    """Value for an array column that holds a set; enumerations as their values."""
    return None if values is None else sorted({str(value) for value in values})


async def fetch(connection: asyncpg.Connection[Any], statement: ClauseElement) -> list[asyncpg.Record]:
    """All rows. Raises asyncpg's errors, like the other functions here."""
    text, values = _compiled(statement)
    rows: list[asyncpg.Record] = await connection.fetch(text, *values)
    return rows


async def fetchrow(connection: asyncpg.Connection[Any], statement: ClauseElement) -> asyncpg.Record | None:
    """The first row."""
    text, values = _compiled(statement)
    return await connection.fetchrow(text, *values)


async def fetchval(connection: asyncpg.Connection[Any], statement: ClauseElement) -> Any:
    """The first row's first column; None without a row."""
    text, values = _compiled(statement)
    return await connection.fetchval(text, *values)


def _compiled(statement: ClauseElement) -> tuple[str, list[object]]:
    """The text with `$1`, and its values in order; values marked `literal_execute` are in the text."""
    compiled: Any = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
    return compiled.string, [compiled.params[name] for name in compiled.positiontup or ()]
