"""The ledger: one row per attempt in `gateway.usage_events`, written once and never changed.

Inserting a row that is there already does nothing, which is what lets the shipper try again after any doubt. A row gets
its price here, by the database: the one that was valid when the request arrived, whatever this gateway knew of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from gateway.metering.journal.records import Closed
from gateway.metering.journal.request_id import arrived_at_s, day_of
from gateway.metering.pricing.price import PER_TOKENS

logger = logging.getLogger(__name__)

REFUSED = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)
"""What PostgreSQL says about a row that it will not take however often it is tried."""

# name, type of the array parameter, expression over it
_COLUMNS = (
    ("request_id", "text", "{}"),
    ("attempt", "int2", "{}"),
    ("organization_id", "uuid", "{}"),
    ("project_id", "uuid", "{}"),
    ("key_id", "uuid", "{}"),
    ("model", "text", "{}"),
    ("tier", "text", "{}"),
    ("endpoint", "text", "{}"),
    ("stream", "bool", "{}"),
    ("pool", "text", "{}"),
    ("replica_id", "text", "{}"),
    ("driver", "text", "{}"),
    ("prompt_tokens", "int4", "{}"),
    ("cached_tokens", "int4", "{}"),
    ("cache_write_tokens", "int4", "{}"),
    ("completion_tokens", "int4", "{}"),
    ("reasoning_tokens", "int4", "{}"),
    ("draft_tokens", "int4", "{}"),
    ("accepted_draft_tokens", "int4", "{}"),
    ("outcome", "text", "{}"),
    ("finish", "text", "{}"),
    ("billed", "bool", "{}"),
    ("status", "int2", "{}"),
    ("error_code", "text", "{}"),
    ("phases_ms", "text", "{}::jsonb"),
    # float8 and to_timestamp: building 500 datetime objects costs more than everything else in a batch
    ("requested_at", "float8", "to_timestamp({})"),
    ("opened_at", "float8", "to_timestamp({})"),
    ("closed_at", "float8", "to_timestamp({})"),
)
_NAMES = ", ".join(name for name, _, _ in _COLUMNS)
_VALUES = ", ".join(expression.format(f"r.{name}") for name, _, expression in _COLUMNS)
_ARRAYS = ", ".join(f"${number}::{kind}[]" for number, (_, kind, _) in enumerate(_COLUMNS, 2))
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
_FIND = (
    f"SELECT {_NAMES}, price_version, amount_micro, gateway_id, recorded_at FROM gateway.usage_events "  # noqa: S608
    "WHERE request_id = $1 ORDER BY attempt"
)
_EPOCH = date(1970, 1, 1)
_encode_json = msgspec.json.Encoder().encode


class LedgerRow(msgspec.Struct, frozen=True):
    """One attempt as the ledger has it."""

    request_id: str
    attempt: int
    organization_id: str
    project_id: str
    key_id: str
    model: str
    tier: str
    endpoint: str
    stream: bool
    pool: str | None
    replica_id: str | None
    driver: str | None
    prompt_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    draft_tokens: int
    accepted_draft_tokens: int
    outcome: str
    finish: str
    billed: bool
    status: int | None
    error_code: str | None
    phases_ms: dict[str, float]
    requested_at: datetime
    opened_at: datetime
    closed_at: datetime
    price_version: int | None
    """Of the price the amount was computed with; None when the row is not billed or its model had no price."""
    amount_micro: int
    gateway_id: str
    recorded_at: datetime


class Ledger:
    """Inserts and finds rows by an asyncpg pool; raises what asyncpg raises."""

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

    async def find(self, request_id: str) -> list[LedgerRow]:
        """Every attempt of a request, first to last; empty when the ledger has none (yet)."""
        async with self._pool.acquire(timeout=self._timeout_s) as connection:
            found = await connection.fetch(_FIND, request_id, timeout=self._timeout_s)
        return [_row(dict(record)) for record in found]


def _arrays(rows: Sequence[Closed]) -> list[list[Any]]:
    """One list for each of `_COLUMNS`."""
    opened = [row.opened for row in rows]
    usages = [row.usage for row in rows]
    return [
        [each.request_id for each in opened],
        [each.attempt for each in opened],
        [each.organization_id for each in opened],
        [each.project_id for each in opened],
        [each.key_id for each in opened],
        [each.model for each in opened],
        [each.tier for each in opened],
        [each.endpoint for each in opened],
        [each.stream for each in opened],
        [row.pool for row in rows],
        [row.replica_id for row in rows],
        [row.driver for row in rows],
        [usage.prompt_tokens for usage in usages],
        [usage.cached_tokens for usage in usages],
        [usage.cache_write_tokens for usage in usages],
        [usage.completion_tokens for usage in usages],
        [usage.reasoning_tokens for usage in usages],
        [usage.draft_tokens for usage in usages],
        [usage.accepted_draft_tokens for usage in usages],
        [row.outcome for row in rows],
        [row.finish for row in rows],
        [row.billed for row in rows],
        [row.status for row in rows],
        [row.error_code for row in rows],
        [_encode_json(row.phases_ms).decode() for row in rows],
        [arrived_at_s(each.request_id) or each.opened_at for each in opened],
        [each.opened_at for each in opened],
        [row.closed_at for row in rows],
    ]


def _row(found: dict[str, Any]) -> LedgerRow:
    for name in ("organization_id", "project_id", "key_id"):
        found[name] = str(found[name])
    found["phases_ms"] = msgspec.json.decode(found["phases_ms"])
    return LedgerRow(**found)
