"""Builds the statement that inserts rows of the ledger. The database reads columns from arrays, and prices each row."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    ColumnElement,
    DateTime,
    Double,
    Text,
    and_,
    bindparam,
    case,
    column,
    func,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.dialects.postgresql.asyncpg import dialect
from sqlalchemy.sql.expression import literal_column
from sqlalchemy.types import TypeEngine

from contracts.usage import Usage
from gateway.metering.journal.records import Closed, Opened
from gateway.metering.ledger.amounts import amount_micro
from gateway.metering.ledger.ledger import ARRIVED, KNOWN_PRICE, OFFLINE
from gateway.metering.pricing.price import WHOLE
from storage.tables.metering import prices, usage_events

_RECORDS = {"opened": Opened, "usage": Usage, "closed": Closed}


class Insertion(NamedTuple):
    """A statement. text: with `$1`. parameters: the names of the columns whose values it takes, and `gateway_id`.
    columns: each column's name, and the record of an attempt that fills it."""

    text: str
    parameters: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]


class _Column(NamedTuple):
    """A column of `usage_events` that a record of the attempt fills. record: its type."""

    name: str
    record: str
    kind: TypeEngine[Any]


def _columns() -> tuple[_Column, ...]:
    """Columns for which a record has a field; the database fills the rest."""
    found = []
    for each in usage_events.c:
        names = (name for name, kind in _RECORDS.items() if each.name in kind.__struct_fields__)
        record = "opened" if each.name == ARRIVED else next(names, None)
        if record is not None:
            # float8 and to_timestamp, as building 500 datetime objects costs more than everything else in a batch
            kind: TypeEngine[Any] = Double() if isinstance(each.type, DateTime) else each.type
            found.append(_Column(each.name, record, Text() if isinstance(kind, Text) else kind))
    return tuple(found)


def insertion() -> Insertion:
    """The statement that inserts rows of the ledger."""
    columns = _columns()
    kinds: dict[str, TypeEngine[Any]] = {each.name: each.kind for each in columns} | {
        KNOWN_PRICE: BigInteger(),
        OFFLINE: Boolean(),
    }
    arrays = (bindparam(name, type_=ARRAY(kind)) for name, kind in kinds.items())
    valued = func.unnest(*arrays).table_valued(*(column(name, kind) for name, kind in kinds.items()), name="r")
    rows = valued.render_derived()
    given = {
        each.name: func.to_timestamp(rows.c[each.name]) if isinstance(each.kind, Double) else rows.c[each.name]
        for each in columns
    }
    valid_then = and_(
        prices.c.valid_from <= given[ARRIVED],
        or_(prices.c.valid_until.is_(None), given[ARRIVED] < prices.c.valid_until),
    )
    known = rows.c[KNOWN_PRICE]
    price = and_(
        rows.c.billed,
        prices.c.model == rows.c.model,
        or_(prices.c.version == known, and_(known.is_(None), valid_then)),
    )
    whole: ColumnElement[int] = literal_column(str(WHOLE))
    percent = case((rows.c[OFFLINE], func.coalesce(prices.c.offline_percent, whole)), else_=whole)
    computed = (
        bindparam("gateway_id", type_=Text),
        prices.c.version,
        amount_micro(rows, prices, percent),
        percent,
    )
    values = select(*given.values(), *computed).select_from(rows.outerjoin(prices, price))
    names = [*given, "gateway_id", "price_version", "amount_micro", "price_percent"]
    # The conflict target is named on purpose: a second billed attempt of a request must be an error, not a dropped row.
    keys = list(usage_events.primary_key)
    statement = insert(usage_events).from_select(names, values).on_conflict_do_nothing(index_elements=keys)
    compiled: Any = statement.compile(dialect=dialect())  # type: ignore[no-untyped-call]
    return Insertion(compiled.string, tuple(compiled.positiontup), tuple((each.name, each.record) for each in columns))
