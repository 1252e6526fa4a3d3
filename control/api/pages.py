"""Pages of lists by cursor, newest first. Each page reads one index range, however long the list is.

A cursor is the sort key of a page's last row, so rows added or deleted in between neither skip nor repeat others.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar, get_type_hints

import asyncpg
import msgspec
from sqlalchemy import CTE, BigInteger, ColumnElement, Select, SmallInteger, literal, tuple_

from contracts.errors import InvalidField
from control.api.moments import has_utc
from control.api.schemas import Page, PageQuery
from storage.rows import fetch, fetchrow, record_of

ItemT = TypeVar("ItemT")
LARGEST: dict[type, int] = {SmallInteger: 2**15 - 1, BigInteger: 2**63 - 1}
"""Largest value by column type; that of a plain Integer is 2**31 - 1."""


async def page_of(
    connection: asyncpg.Connection[Any],
    kind: type[ItemT],
    statement: Select[Any],
    query: PageQuery,
    *order: ColumnElement[Any],
    completed: Callable[[CTE], Select[Any]] | None = None,
) -> Page[ItemT]:
    """One page of `statement`'s rows, as structs whose fields are its columns.

    order: columns that are fields of `kind`, unique together and the beginning of an index. completed: selects the
    structs' fields from the page's rows, if they would cost too much for all rows; by default, `statement` has them.
    Raises InvalidField for an invalid cursor.
    """
    names = [str(column.key) for column in order]
    if query.cursor is not None:
        statement = statement.where(tuple_(*order) < tuple(_decode(query.cursor, kind, order)))
    # The limit is a literal, because PostgreSQL would plan a parameter for any number of rows.
    found = statement.order_by(*(column.desc() for column in order))
    found = found.limit(literal(query.limit + 1, literal_execute=True))
    if completed is not None:
        page = found.cte("page")
        found = completed(page).order_by(*(page.c[name].desc() for name in names))
    rows = await fetch(connection, found)
    items = [record_of(kind, row) for row in rows[: query.limit]]
    more = len(rows) > query.limit
    cursor = cursor_of([getattr(items[-1], name) for name in names]) if more else None
    return Page(data=items, has_more=more, next_cursor=cursor)


async def single_row_page(
    connection: asyncpg.Connection[Any], kind: type[ItemT], statement: Select[Any]
) -> Page[ItemT]:
    """The statement's single row of sums, or no item if the row counts no request."""
    row = await fetchrow(connection, statement)
    items = [] if row is None or row["requests"] is None else [record_of(kind, row)]
    return Page(data=items, has_more=False, next_cursor=None)


def cursor_of(values: list[object]) -> str:
    """The cursor of the page that follows the row with these sort values."""
    return base64.urlsafe_b64encode(msgspec.json.encode(values)).decode().rstrip("=")


def _decode(cursor: str, kind: type[ItemT], order: tuple[ColumnElement[Any], ...]) -> list[object]:
    hints = get_type_hints(kind)
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        encoded = msgspec.json.decode(raw, type=list[str | int])
        values = [msgspec.convert(value, hints[str(column.key)]) for value, column in zip(encoded, order, strict=True)]
    except (binascii.Error, msgspec.MsgspecError, ValueError, RecursionError):
        values = []
    if not values or any(map(_unfit, values, order)):
        raise InvalidField("Invalid value for 'cursor': it is not the `next_cursor` of a page.", param="cursor")
    return values


def _unfit(value: object, column: ColumnElement[Any]) -> bool:
    """Whether PostgreSQL cannot compare the value with the column, or its driver cannot send it."""
    match value:
        case int():
            return abs(value) > LARGEST.get(type(column.type), 2**31 - 1)
        case str():
            return "\0" in value
        case datetime():
            return not has_utc(value)
    return False
