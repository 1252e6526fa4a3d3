"""The ledger: one row per attempt in `gateway.usage_events`, written once and never changed.

Inserting a row that is there already does nothing, which is what lets the shipper try again after any doubt. A row gets
its price here, by the database: the one that was valid when the request arrived, whatever this gateway knew of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import date, timedelta
from operator import attrgetter
from typing import Any

import asyncpg
import msgspec

from gateway.metering.journal.records import Closed
from gateway.metering.journal.request_id import arrived_at_s, day_of
from gateway.metering.pricing.price import PER_TOKENS

logger = logging.getLogger(__name__)

REFUSED = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)
"""What PostgreSQL says about a row that it will not take however often it is tried."""

_COLUMNS = (
    *(("opened", name, kind) for name, kind in (
        ("request_id", "text"), ("attempt", "int2"), ("organization_id", "uuid"), ("project_id", "uuid"),
        ("key_id", "uuid"), ("model", "text"), ("tier", "text"), ("endpoint", "text"), ("stream", "bool"),
        # float8 and to_timestamp: building 500 datetime objects costs more than everything else in a batch
        ("requested_at", "float8"), ("opened_at", "float8"),
    )),
    *(("usage", name, "int4") for name in (
        "prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens", "draft_tokens",
        "accepted_draft_tokens",
    )),
    *(("closed", name, kind) for name, kind in (
        ("pool", "text"), ("replica_id", "text"), ("driver", "text"), ("outcome", "text"), ("finish", "text"),
        ("billed", "bool"), ("status", "int2"), ("error_code", "text"), ("phases_ms", "jsonb"), ("closed_at", "float8"),
    )),
)  # fmt: skip
"""Which record of an attempt has a column's value, under the same name; the column; the type of its array parameter."""
_NAMES = ", ".join(name for _, name, _ in _COLUMNS)
_VALUES = ", ".join(f"to_timestamp(r.{name})" if kind == "float8" else f"r.{name}" for _, name, kind in _COLUMNS)
_ARRAYS = ", ".join(f"${number}::{kind}[]" for number, (_, _, kind) in enumerate(_COLUMNS, 2))
AMOUNT = f"""
div((r.prompt_tokens - part.cached - part.written)::numeric * price.input_micro
    + part.cached::numeric * price.cached_input_micro + part.written::numeric * price.cache_write_micro
    + r.completion_tokens::numeric * price.output_micro + {PER_TOKENS // 2}, {PER_TOKENS})::bigint
"""
"""`Price.amount_micro`, to the integer, of a row `r` with a `price` and its `PARTS`."""
PARTS = """
 CROSS JOIN LATERAL (SELECT least(r.cached_tokens, r.prompt_tokens) AS cached) AS found
 CROSS JOIN LATERAL (
       SELECT found.cached, least(r.cache_write_tokens, r.prompt_tokens - found.cached) AS written) AS part
"""
# The conflict target is named on purpose: a second billed attempt of one request must be an error, not a row dropped.
_INSERT = f"""
INSERT INTO gateway.usage_events ({_NAMES}, gateway_id, price_version, amount_micro)
SELECT {_VALUES}, $1, price.version, CASE WHEN price.version IS NULL THEN 0 ELSE {AMOUNT} END
  FROM unnest({_ARRAYS}) AS r({_NAMES})
  LEFT JOIN gateway.prices price
    ON r.billed AND price.model = r.model AND price.valid_from <= to_timestamp(r.requested_at)
   AND (price.valid_until IS NULL OR to_timestamp(r.requested_at) < price.valid_until)
 {PARTS}
    ON CONFLICT (request_id, attempt) DO NOTHING
"""  # noqa: S608  built from constants of this file
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
            return await self._insert(gateway_id, arrays)
        except asyncpg.UniqueViolationError:
            # Another gateway is inserting the same row: the index of billed attempts waits for it and fails before the
            # conflict over the key is seen. Now it is there to be seen, unless it was a second billed attempt.
            return await self._insert(gateway_id, arrays)
        except asyncpg.CheckViolationError as error:
            if error.constraint_name is not None:
                raise
        # PostgreSQL's way to say that there is no partition for a row: the worker has not been here for days, or a
        # journal comes back from far away.
        await self._ensure_days(rows)
        return await self._insert(gateway_id, arrays)

    async def _insert(self, gateway_id: str, arrays: list[list[Any]]) -> int:
        async with self._pool.acquire(timeout=self._timeout_s) as connection:
            done: str = await connection.execute(_INSERT, gateway_id, *arrays, timeout=self._timeout_s)
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


def _arrays(rows: Sequence[Closed]) -> list[list[Any]]:
    """One list for each of `_COLUMNS`."""
    opened = [row.opened for row in rows]
    records: dict[str, Sequence[Any]] = {"opened": opened, "usage": [row.usage for row in rows], "closed": rows}
    made: dict[str, list[Any]] = {
        "requested_at": [arrived_at_s(each.request_id) or each.opened_at for each in opened],
        "phases_ms": [_encode_json(row.phases_ms).decode() for row in rows],
    }
    return [made.get(name) or list(map(attrgetter(name), records[record])) for record, name, _ in _COLUMNS]
