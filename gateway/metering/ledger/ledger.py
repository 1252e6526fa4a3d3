"""The ledger: one row per attempt in `gateway.usage_events`, written once and never changed.

Inserting a row that is there already does nothing, which is what lets the shipper try again after any doubt. A row gets
its price here, by the database: the one that was valid when the request arrived, whatever this gateway knew of it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from datetime import date, timedelta
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import asyncpg
import msgspec
from sqlalchemy import ARRAY, DateTime, Double, Text, and_, bindparam, column, func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.dialects.postgresql.asyncpg import dialect
from sqlalchemy.types import TypeEngine

from contracts.usage import Usage
from gateway.metering.journal.records import Closed, Opened
from gateway.metering.journal.request_id import arrived_at_s, day_of
from gateway.metering.ledger.events import amount_micro
from gateway.metering.tables import prices, usage_events

logger = logging.getLogger(__name__)

REFUSED = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)
"""What PostgreSQL says about a row that it will not take however often it is tried."""

RACES = 3
"""Lost one after the other before a violation is taken for what it says."""
_RECORDS = {"opened": Opened, "usage": Usage, "closed": Closed}
_ARRIVED = "requested_at"
"""Known by the request's id."""


class _Column(NamedTuple):
    """One of `usage_events` that a record of the attempt fills. record: which one."""

    name: str
    record: str
    kind: TypeEngine[Any]


@cache
def _columns() -> tuple[_Column, ...]:
    """Those that a record has a field for; the rest is the database's to say."""
    found = []
    for each in usage_events.c:
        names = (name for name, kind in _RECORDS.items() if each.name in kind.__struct_fields__)
        record = "opened" if each.name == _ARRIVED else next(names, None)
        if record is not None:
            # float8 and to_timestamp: building 500 datetime objects costs more than everything else in a batch
            kind: TypeEngine[Any] = Double() if isinstance(each.type, DateTime) else each.type
            found.append(_Column(each.name, record, Text() if isinstance(kind, Text) else kind))
    return tuple(found)


@cache
def _insert() -> tuple[str, tuple[str, ...]]:
    """The statement, and whose values its parameters are: a column's name each, and `gateway_id`."""
    columns = _columns()
    arrays = (bindparam(each.name, type_=ARRAY(each.kind)) for each in columns)
    valued = func.unnest(*arrays).table_valued(*(column(each.name, each.kind) for each in columns), name="r")
    rows = valued.render_derived()
    given = {
        each.name: func.to_timestamp(rows.c[each.name]) if isinstance(each.kind, Double) else rows.c[each.name]
        for each in columns
    }
    price = and_(
        rows.c.billed,
        prices.c.model == rows.c.model,
        prices.c.valid_from <= given[_ARRIVED],
        or_(prices.c.valid_until.is_(None), given[_ARRIVED] < prices.c.valid_until),
    )
    computed = (bindparam("gateway_id", type_=Text), prices.c.version, amount_micro(rows, prices))
    values = select(*given.values(), *computed).select_from(rows.outerjoin(prices, price))
    names = [*given, "gateway_id", "price_version", "amount_micro"]
    # The conflict target is named on purpose: a second billed attempt of one request must be an error, not a row
    # dropped.
    keys = list(usage_events.primary_key)
    statement = insert(usage_events).from_select(names, values).on_conflict_do_nothing(index_elements=keys)
    compiled: Any = statement.compile(dialect=dialect())  # type: ignore[no-untyped-call]
    return compiled.string, tuple(compiled.positiontup)


_EPOCH = date(1970, 1, 1)
_encode_json = msgspec.json.Encoder().encode


class Ledger:
    """Inserts rows by an asyncpg pool; raises what asyncpg raises."""

    def __init__(self, pool: asyncpg.Pool[Any], timeout_s: float = 30.0) -> None:
        """timeout_s: for one statement, getting a connection included."""
        self._pool = pool
        self._timeout_s = timeout_s

    async def insert(self, rows: Sequence[Closed], gateway_id: str) -> int:
        """Insert all rows in one statement; returns how many of them were new.

        All or nothing. One of `REFUSED` means that a row among them can never be inserted as it is.
        """
        arrays = _arrays(rows)
        try:
            return await self._insert_raced(gateway_id, arrays)
        except asyncpg.CheckViolationError as error:
            if error.constraint_name is not None:
                raise
        # PostgreSQL's way to say that there is no partition for a row: the worker has not been here for days, or a
        # journal comes back from far away.
        await self._ensure_days(rows)
        return await self._insert_raced(gateway_id, arrays)

    async def _insert_raced(self, gateway_id: str, arrays: dict[str, list[Any]]) -> int:
        """As `_insert`, beside other gateways that insert the same rows: the index of billed attempts waits for one of
        them and fails before the conflict over the key is seen. Then it is there to be seen, unless it was a second
        billed attempt."""
        for _ in range(RACES):
            with contextlib.suppress(asyncpg.UniqueViolationError):
                return await self._insert(gateway_id, arrays)
        return await self._insert(gateway_id, arrays)

    async def _insert(self, gateway_id: str, arrays: dict[str, list[Any]]) -> int:
        statement, names = _insert()
        values = [gateway_id if name == "gateway_id" else arrays[name] for name in names]
        async with self._pool.acquire(timeout=self._timeout_s) as connection:
            done: str = await connection.execute(statement, *values, timeout=self._timeout_s)
        return int(done.rpartition(" ")[2])

    async def _ensure_days(self, rows: Sequence[Closed]) -> None:
        days = {day for row in rows if (day := day_of(row.opened.request_id)) is not None}
        async with self._pool.acquire(timeout=self._timeout_s) as connection:
            for day in sorted(days):
                made = await connection.fetchval(
                    "SELECT gateway.ensure_usage_day($1)", _EPOCH + timedelta(days=day), timeout=self._timeout_s
                )
                if made:
                    logger.info("ledger: made the partition of %s", _EPOCH + timedelta(days=day))


def _arrays(rows: Sequence[Closed]) -> dict[str, list[Any]]:
    """One list for each of `_columns`, by its name."""
    opened = [row.opened for row in rows]
    records: dict[str, Sequence[Any]] = {"opened": opened, "usage": [row.usage for row in rows], "closed": rows}
    made: dict[str, list[Any]] = {
        _ARRIVED: [arrived_at_s(each.request_id) or each.opened_at for each in opened],
        "phases_ms": [_encode_json(row.phases_ms).decode() for row in rows],
    }
    read = {name: list(map(attrgetter(name), records[record])) for name, record, _ in _columns() if name not in made}
    return {**read, **made}
