"""A worker's lease of a run or a comparison: limited in time, renewed during the work, and released at the end.

Only the database's clock counts, so workers on several machines need not agree on the time. A worker that has lost its
lease stores nothing more, because every statement of a worker names the lease.
"""

from __future__ import annotations

from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import msgspec

from control.deferred.leases import LeaseLost
from storage.tables.evals import Decision, Status

Connection: TypeAlias = "asyncpg.Connection[Any]"

# The oldest comes first. Of two workers, one gets it and the other the next one.
_CLAIM = """
WITH waiting AS (
    SELECT id FROM evals.{table}
     WHERE status IN ('queued', 'running') AND (lease_until IS NULL OR lease_until < now()) AND {alone}
     ORDER BY created_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE evals.{table} SET status = 'running', started_at = coalesce(started_at, now()), lease_id = gen_random_uuid(),
       lease_until = now() + make_interval(secs => $1)
  FROM waiting WHERE {table}.id = waiting.id RETURNING {table}.id, lease_id
"""
_KEEP = """
UPDATE evals.{table} SET lease_until = now() + make_interval(secs => $3) WHERE id = $1 AND lease_id = $2
RETURNING cancel_asked_at IS NOT NULL AS cancelled
"""
_GIVE_BACK = "UPDATE evals.{table} SET lease_id = NULL, lease_until = NULL WHERE id = $1 AND lease_id = $2"
_END_RUN = """
UPDATE evals.runs SET status = $3, error = $4, ended_at = now(), lease_id = NULL, lease_until = NULL
 WHERE id = $1 AND lease_id = $2
"""
_END_COMPARISON = """
UPDATE evals.comparisons
   SET status = $3, error = $4, decision = $5, ended_at = now(), lease_id = NULL, lease_until = NULL
 WHERE id = $1 AND lease_id = $2
"""
RUNS, COMPARISONS = "runs", "comparisons"
_ALONE = {RUNS: "arm IS NULL", COMPARISONS: "true"}
"""A comparison's runs are not claimed alone."""


class Claim(msgspec.Struct, frozen=True):
    """A worker's claim. table: `runs` or `comparisons`."""

    table: str
    id: UUID
    lease_id: UUID


class CancelAsked(Exception):
    """An administrator has cancelled the run or comparison."""


async def claim(connection: Connection, lease_s: float) -> Claim | None:
    """Claim the next run or comparison; None if there is none. Comparisons come first: releases wait for them."""
    for table in (COMPARISONS, RUNS):
        row = await connection.fetchrow(_CLAIM.format(table=table, alone=_ALONE[table]), lease_s)
        if row is not None:
            return Claim(table, row["id"], row["lease_id"])
    return None


async def keep(connection: Connection, held: Claim, lease_s: float) -> None:
    """Renew the lease for `lease_s` from now. Raises LeaseLost and CancelAsked."""
    row = await connection.fetchrow(_KEEP.format(table=held.table), held.id, held.lease_id, lease_s)
    if row is None:
        raise LeaseLost
    if row["cancelled"]:
        raise CancelAsked


async def give_back(connection: Connection, held: Claim) -> None:
    """Release the lease, so that another worker can continue at once."""
    await connection.execute(_GIVE_BACK.format(table=held.table), held.id, held.lease_id)


async def end(
    connection: Connection, held: Claim, status: Status, error: str | None = None, decision: Decision | None = None
) -> None:
    """End a run or comparison. decision: of a finished comparison."""
    if held.table == RUNS:
        await connection.execute(_END_RUN, held.id, held.lease_id, status.value, error)
    else:
        decided = None if decision is None else decision.value
        await connection.execute(_END_COMPARISON, held.id, held.lease_id, status.value, error, decided)
