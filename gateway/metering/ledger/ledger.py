"""Inserts one row per attempt into `gateway.usage_events`, the ledger. A row is written once and never changed.

Inserting an existing row has no effect, so the shipper can retry after any doubt. The database computes a row's amount
at the price that its gateway knew when the request arrived, which limits in money used, too. If the gateway knew no
price yet, or an earlier release wrote the journal, it is the price valid at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import date, timedelta
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
import msgspec

from contracts.dated_request_id import arrived_at_s, day_of
from gateway.metering.journal.records import Closed

if TYPE_CHECKING:
    from gateway.metering.ledger.insertion import Insertion

logger = logging.getLogger(__name__)

REFUSED = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)
"""PostgreSQL's errors for a row that it will never accept."""

RACES = 3
"""Lost races in a row before a violation counts as real."""

ARRIVED = "requested_at"
"""The column whose value the request's id contains."""
KNOWN_PRICE, OFFLINE = "known_price", "offline"
"""Parameters of the statement that have no column."""
ResultT = TypeVar("ResultT")
_EPOCH = date(1970, 1, 1)
_encode_json = msgspec.json.Encoder().encode


class Ledger:
    """Inserts rows through an asyncpg pool. Raises asyncpg's errors."""

    def __init__(self, pool: asyncpg.Pool[Any], timeout_s: float = 30.0) -> None:
        """timeout_s: the limit for one statement and for getting a connection."""
        self._pool = pool
        self._timeout_s = timeout_s
        self._insertion: Insertion | None = None

    async def insert(self, rows: Sequence[Closed], gateway_id: str) -> int:
        """Insert all rows or none, in one statement. Returns the number of new rows.

        An error in `REFUSED` means that one of the rows can never be inserted unchanged.
        """
        if self._insertion is None:
            self._insertion = await asyncio.to_thread(_load_insertion)
        arrays = _arrays(rows, self._insertion)
        return await self.with_days(rows, partial(self._insert_raced, self._insertion, gateway_id, arrays))

    async def insert_within(self, connection: asyncpg.Connection[Any], rows: Sequence[Closed], gateway_id: str) -> None:
        """Insert all rows in the connection's transaction. Raises asyncpg's errors, and CheckViolationError without a
        constraint's name for a day without a partition: run the transaction by `with_days`."""
        if self._insertion is None:
            self._insertion = await asyncio.to_thread(_load_insertion)
        values = _values(self._insertion, gateway_id, _arrays(rows, self._insertion))
        await connection.execute(self._insertion.text, *values, timeout=self._timeout_s)

    async def _insert_raced(self, insertion: Insertion, gateway_id: str, arrays: dict[str, list[Any]]) -> int:
        """Like `_insert`, while other gateways insert the same rows. The index of billed attempts waits for one of them
        and fails before the conflict over the key is visible. A retry sees it, except for a second billed attempt."""
        for _ in range(RACES):
            with contextlib.suppress(asyncpg.UniqueViolationError):
                return await self._insert(insertion, gateway_id, arrays)
        return await self._insert(insertion, gateway_id, arrays)

    async def _insert(self, insertion: Insertion, gateway_id: str, arrays: dict[str, list[Any]]) -> int:
        values = _values(insertion, gateway_id, arrays)
        async with self._pool.acquire(timeout=self._timeout_s) as connection:
            done: str = await connection.execute(insertion.text, *values, timeout=self._timeout_s)
        return int(done.rpartition(" ")[2])

    async def with_days(self, rows: Sequence[Closed], store: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Call `store`, which inserts these rows, again if a day of theirs has no partition: the worker has not run for
        days, or the journal is old. Raises CheckViolationError without a constraint's name if `store` keeps to a
        connection that does not know the partition."""
        # A connection that was opened while a partition was being attached can keep a list of partitions without it
        # until PostgreSQL's next change of the table (seen with 18.4).
        for mend in (partial(self._ensure_days, rows), self._pool.expire_connections):
            try:
                return await store()
            except asyncpg.CheckViolationError as error:
                if error.constraint_name is not None:
                    raise
            await mend()
        return await store()

    async def _ensure_days(self, rows: Sequence[Closed]) -> None:
        """Create the missing partitions of these rows."""
        days = {day for row in rows if (day := day_of(row.opened.request_id)) is not None}
        async with self._pool.acquire(timeout=self._timeout_s) as connection:
            for day in sorted(days):
                created = await connection.fetchval(
                    "SELECT gateway.ensure_usage_day($1)", _EPOCH + timedelta(days=day), timeout=self._timeout_s
                )
                if created:
                    logger.info("ledger: created the partition of %s", _EPOCH + timedelta(days=day))


def _load_insertion() -> Insertion:
    """Build the statement. Run in a thread, because SQLAlchemy, which writes it, takes a fifth of a second to load."""
    from gateway.metering.ledger.insertion import insertion

    return insertion()


def _values(insertion: Insertion, gateway_id: str, arrays: dict[str, list[Any]]) -> list[Any]:
    return [gateway_id if name == "gateway_id" else arrays[name] for name in insertion.parameters]


def _arrays(rows: Sequence[Closed], insertion: Insertion) -> dict[str, list[Any]]:
    """One list for each column, by the column's name."""
    opened = [row.opened for row in rows]
    records: dict[str, Sequence[Any]] = {"opened": opened, "usage": [row.usage for row in rows], "closed": rows}
    computed: dict[str, list[Any]] = {
        ARRIVED: [arrived_at_s(each.request_id) or each.opened_at for each in opened],
        "phases_ms": [_encode_json(row.phases_ms).decode() for row in rows],
        KNOWN_PRICE: [each.known_price for each in opened],
        OFFLINE: [each.offline for each in opened],
    }
    copied = {
        name: list(map(attrgetter(name), records[record])) for name, record in insertion.columns if name not in computed
    }
    return {**copied, **computed}
