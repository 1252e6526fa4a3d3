"""Lists in pages by cursor: newest first, each page one index range, however long the list is.

A cursor is the sort key of the last row seen, so rows that come or go in between neither shift nor repeat others.
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
"""By a column's type; a plain Integer reaches to 2**31 - 1."""


async def page_of(
    connection: asyncpg.Connection[Any],
    kind: type[ItemT],
    statement: Select[Any],
    query: PageQuery,
    *order: ColumnElement[Any],
    completed: Callable[[CTE], Select[Any]] | None = None,
) -> Page[ItemT]:
    """One page of `statement`'s rows, as structs whose fields are its columns.

    order: columns that are fields of `kind`, unique together and led by an index. completed: selects the structs'
    fields from the page's rows, for fields that would cost too much for all rows; None: `statement` has them. Raises
    InvalidField for an invalid cursor.
    """
    names = [str(column.key) for column in order]
    if query.cursor is not None:
        statement = statement.where(tuple_(*order) < tuple(_decode(query.cursor, kind, order)))
    # The number is in the text: a plan for any limit would not be the one for a page.
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
    """The statement's one row of sums; no item where they are of no request."""
    row = await fetchrow(connection, statement)
    some = [] if row is None or row["requests"] is None else [record_of(kind, row)]
    return Page(data=some, has_more=False, next_cursor=None)


def cursor_of(values: list[object]) -> str:
    """The cursor of the page after the row with these values of its order."""
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
