"""Leases of rows. One worker holds a row at a time, and every change checks the lease, so that a worker that has lost
it changes nothing more. Only the database's clock decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import msgspec

Connection: TypeAlias = "asyncpg.Connection[Any]"

LEASE_S = 30.0


class LeaseLost(Exception):
    """Another worker has the row, or its work has ended."""


class Claim(msgspec.Struct):
    """A worker's claim of a row. suspect: see `Leases`."""

    id: str
    lease_id: UUID
    suspect: bool = False
    leased_at_s: float = float("-inf")
    """The monotonic time before the claim or its last renewal was sent."""

    @property
    def key(self) -> tuple[str, UUID]:
        """The first two parameters of each statement."""
        return self.id, self.lease_id

    def surely_leased(self) -> bool:
        """Whether no other worker can have claimed the row until now."""
        return time.monotonic() - self.leased_at_s < LEASE_S


class Leases:
    """Leases of rows of one table, which has the columns id, organization_id, lease_id, lease_until and turn_at.

    unfinished: SQL condition for rows that need work. told: SQL expression that `renew` returns for a row. suspect: SQL
    condition for rows of which a worker holds only one at a time.
    """

    def __init__(self, table: str, unfinished: str, told: str, suspect: str = "false") -> None:
        waits = f"{unfinished} AND (lease_until IS NULL OR lease_until < now())"
        # The organization with the fewest rows in hand comes first, then the row that has waited longest for its turn.
        self._claim = f"""
WITH in_hand AS (
    SELECT organization_id, count(*) AS rows FROM {table}
     WHERE {unfinished} AND lease_id IS NOT NULL AND lease_until >= now() GROUP BY organization_id
), waiting AS (
    SELECT mine.id FROM {table} AS mine LEFT JOIN in_hand USING (organization_id)
     WHERE {waits} AND coalesce(in_hand.rows, 0) < $2 AND ($3 OR NOT ({suspect}))
     ORDER BY coalesce(in_hand.rows, 0), turn_at, id LIMIT 1 FOR UPDATE OF mine SKIP LOCKED
)
UPDATE {table} AS held SET lease_id = gen_random_uuid(), lease_until = now() + make_interval(secs => $1),
       turn_at = now()
  FROM waiting WHERE held.id = waiting.id RETURNING held.id, held.lease_id, {suspect} AS suspect
"""  # noqa: S608
        own = "WHERE id = $1 AND lease_id = $2"
        self._renew = f"UPDATE {table} SET lease_until = now() + make_interval(secs => $3) {own} RETURNING {told}"  # noqa: S608
        self._release = f"""
UPDATE {table} SET lease_id = NULL, lease_until = now() + make_interval(secs => $3) {own}
"""  # noqa: S608
        self._has_waiting = f"SELECT EXISTS (SELECT FROM {table} WHERE {waits})"  # noqa: S608

    async def claim(self, connection: Connection, most_each: int, suspects: bool = True) -> Claim | None:
        """Take a row that no worker holds; None without one. most_each: limit of one organization's held rows.
        suspects: whether it may be a suspect."""
        asked_at_s = time.monotonic()
        row = await connection.fetchrow(self._claim, LEASE_S, most_each, suspects)
        return None if row is None else Claim(row["id"], row["lease_id"], row["suspect"], asked_at_s)

    async def renew(self, connection: Connection, claim: Claim) -> Any:
        """Extend the lease, and return `told` of the row. Raises LeaseLost."""
        asked_at_s = time.monotonic()
        value = await connection.fetchval(self._renew, *claim.key, LEASE_S)
        if value is None:
            raise LeaseLost
        claim.leased_at_s = asked_at_s
        return value

    async def release(self, connection: Connection, claim: Claim, pause_s: float = 0.0) -> None:
        """Release the row, so that another worker may continue it after the pause."""
        await connection.execute(self._release, *claim.key, pause_s)

    async def has_waiting(self, connection: Connection) -> bool:
        """Whether a row waits for a worker."""
        return bool(await connection.fetchval(self._has_waiting))


async def while_leased(
    work: Coroutine[Any, Any, None], renewing: Coroutine[Any, Any, None], stop: asyncio.Event
) -> tuple[bool, BaseException | None]:
    """Run the work until it ends, its lease cannot be renewed, or the process stops.

    Returns whether the work ended without an error, and the first error of the work or the renewal.
    """
    working, keeping = asyncio.create_task(work), asyncio.create_task(renewing)
    tasks: tuple[asyncio.Task[Any], ...] = (working, keeping, asyncio.create_task(stop.wait()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    errors = (each.exception() for each in (working, keeping) if not each.cancelled() and each.exception())
    return not working.cancelled() and working.exception() is None, next(errors, None)
