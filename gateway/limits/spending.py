"""Stores limits' data in PostgreSQL: the ledger's sums, the gateways whose journals count, and crossed thresholds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

import asyncpg
import msgspec

from contracts.dated_request_id import first_at
from contracts.generation import Tier
from gateway.limits.levels import Level
from storage.engine import borrow

_COLUMNS = {Level.ORGANIZATION: "organization_id", Level.PROJECT: "project_id", Level.KEY: "key_id"}
# The ids bound the partitions; the two with ids without a time are always searched.
_SPENT = """
SELECT coalesce(sum(amount_micro), 0)::bigint
  FROM gateway.usage_events
 WHERE {column} = $1 AND ($2::text IS NULL OR tier = $2) AND billed AND requested_at >= $3
   AND (request_id >= $4 OR request_id < 'req_016f5e66e800') AND request_id <> ALL($5::text[])
"""
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_JOIN = """
INSERT INTO gateway.limit_gateways (instance, epoch) VALUES ($1, $2)
    ON CONFLICT (instance) DO UPDATE SET epoch = excluded.epoch, joined_at = now()
"""
_CROSSED = """
INSERT INTO gateway.budget_crossings
       (level, subject_id, tier, month, percent, organization_id, limit_micro, spent_micro)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT DO NOTHING
RETURNING percent
"""


class Subject(msgspec.Struct, frozen=True):
    """Owner of the money: an organization, a project or a key, in one tier or in all."""

    level: Level
    subject_id: str
    tier: Tier | None


class Crossing(msgspec.Struct, frozen=True):
    """A budget of which `percent` is spent. month: `2026-11`.

    refused: whether a request was refused because the rest might not have paid for it; `spent_micro` then includes the
    possible cost of running requests.
    """

    organization_id: str
    level: str
    subject_id: str
    tier: str | None
    month: str
    percent: int
    limit_micro: int
    spent_micro: int
    refused: bool = False


TIMEOUT_S = 30.0
"""Limit for one statement."""
CrossingSink: TypeAlias = "Callable[[asyncpg.Connection[Any], Crossing], Awaitable[None]]"
"""Reports a crossing in the transaction that records it, like the webhook outbox. If it raises, it is called again."""


class Spending(Protocol):
    """Data source of limits; `LedgerSpending` is the real one. Raises asyncpg's errors."""

    async def now_ms(self) -> int:
        """The ledger's own clock, in epoch milliseconds."""
        ...

    async def spent_micro(self, subject: Subject, since_ms: int, without: Collection[str]) -> int:
        """Money billed to the subject for requests since `since_ms` (epoch), except those in `without`."""
        ...

    async def join(self, instance: str, epoch: str) -> None:
        """Record that this gateway's journal may hold rows that the ledger does not."""
        ...

    async def leave(self, instance: str) -> None:
        """Record that this gateway's journal is empty and has no writer."""
        ...

    async def instances(self) -> set[str]:
        """The gateways that have joined and not left."""
        ...

    async def crossed(self, crossing: Crossing) -> None:
        """Record a crossed threshold, once for each limit of a month; a refusal only sends its event."""
        ...


class LedgerSpending:
    """`Spending` on an asyncpg pool. on_crossing: see CrossingSink; None if crossings are only recorded."""

    def __init__(self, pool: asyncpg.Pool[Any], on_crossing: CrossingSink | None = None) -> None:
        self._pool = pool
        self._on_crossing = on_crossing

    async def now_ms(self) -> int:
        async with borrow(self._pool) as connection:
            now_ms: int = await connection.fetchval(_NOW, timeout=TIMEOUT_S)
        return now_ms

    async def spent_micro(self, subject: Subject, since_ms: int, without: Collection[str]) -> int:
        since = datetime.fromtimestamp(since_ms / 1_000, UTC)
        async with borrow(self._pool) as connection:
            spent: int = await connection.fetchval(
                _SPENT.format(column=_COLUMNS[subject.level]),
                subject.subject_id,
                subject.tier.value if subject.tier else None,
                since,
                first_at(since_ms / 1_000),
                list(without),
                timeout=TIMEOUT_S,
            )
        return spent

    async def join(self, instance: str, epoch: str) -> None:
        async with borrow(self._pool) as connection:
            await connection.execute(_JOIN, instance, epoch, timeout=TIMEOUT_S)

    async def leave(self, instance: str) -> None:
        async with borrow(self._pool) as connection:
            await connection.execute("DELETE FROM gateway.limit_gateways WHERE instance = $1", instance)

    async def instances(self) -> set[str]:
        async with borrow(self._pool) as connection:
            rows = await connection.fetch("SELECT instance FROM gateway.limit_gateways", timeout=TIMEOUT_S)
        return {row[0] for row in rows}

    async def crossed(self, crossing: Crossing) -> None:
        async with borrow(self._pool) as connection, connection.transaction():
            new = crossing.refused or await connection.fetchval(
                _CROSSED,
                crossing.level,
                crossing.subject_id,
                crossing.tier or "",
                crossing.month,
                crossing.percent,
                crossing.organization_id,
                crossing.limit_micro,
                crossing.spent_micro,
            )
            if new and self._on_crossing is not None:
                await self._on_crossing(connection, crossing)
