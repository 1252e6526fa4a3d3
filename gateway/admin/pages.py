"""Lists in pages by cursor: newest first, each page one index range, however long the list is.

A cursor is the sort key of the last row seen, so rows that come or go in between neither shift nor repeat others.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeVar, get_type_hints

import asyncpg
import msgspec

from contracts.errors import InvalidField
from gateway.admin.bodies import Page, PageQuery

ItemT = TypeVar("ItemT")
LARGEST = 2**63 - 1


class Where:
    """Conditions of one query, collected; values travel beside the text."""

    def __init__(self) -> None:
        self.terms: list[str] = []
        self.arguments: list[object] = []

    def add(self, term: str, *values: object) -> None:
        """One condition; `{}` stands for each value."""
        places = [f"${len(self.arguments) + number}" for number in range(1, len(values) + 1)]
        self.terms.append(term.format(*places))
        self.arguments += values

    def add_if(self, term: str, value: object | None) -> None:
        """The condition, if there is a value."""
        if value is not None:
            self.add(term, value)

    @property
    def text(self) -> str:
        """The WHERE clause."""
        return f"WHERE {' AND '.join(self.terms)}" if self.terms else ""


async def page_of(
    connection: asyncpg.Connection[Any],
    kind: type[ItemT],
    select: str,
    where: Where,
    query: PageQuery,
    *,
    table: str,
    order: tuple[str, ...] = ("created_at", "id"),
    group_by: str = "",
) -> Page[ItemT]:
    """One page of what `select` finds, as structs whose fields are its columns.

    order: columns of `table` that are fields of `kind`, unique together and led by an index. group_by: of totals, the
    same columns. Raises InvalidField for a cursor that is none.
    """
    columns = ", ".join(f"{table}.{column}" for column in order)
    if query.cursor is not None:
        values = _decode(query.cursor, kind, order)
        where.add(f"({columns}) < ({', '.join('{}' for _ in order)})", *values)
    newest_first = ", ".join(f"{table}.{column} DESC" for column in order)
    rows = await connection.fetch(
        f"{select} {where.text} {group_by} ORDER BY {newest_first} LIMIT {query.limit + 1}", *where.arguments
    )
    items = [record_of(kind, row) for row in rows[: query.limit]]
    more = len(rows) > query.limit
    cursor = _encode([getattr(items[-1], column) for column in order]) if more else None
    return Page(data=items, has_more=more, next_cursor=cursor)


def record_of(kind: type[ItemT], row: asyncpg.Record) -> ItemT:
    """A row as a struct of the same names."""
    return msgspec.convert(dict(row), kind)


def _encode(values: list[object]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(values)).decode().rstrip("=")


def _decode(cursor: str, kind: type[ItemT], order: tuple[str, ...]) -> list[object]:
    hints = get_type_hints(kind)
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        encoded = msgspec.json.decode(raw, type=list[str | int])
        values = [msgspec.convert(value, hints[column]) for value, column in zip(encoded, order, strict=True)]
    except (binascii.Error, msgspec.MsgspecError, ValueError, RecursionError):
        values = []
    if not values or any(_unfit(value) for value in values):
        raise InvalidField("Invalid value for 'cursor': it is not one that a page gave.", param="cursor")
    return values


def _unfit(value: object) -> bool:
    """What PostgreSQL cannot compare with anything."""
    return (isinstance(value, int) and abs(value) > LARGEST) or (isinstance(value, str) and "\0" in value)
