"""Stores answers as rows, one for each item of a run: in a transaction of its own, as soon as it arrives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import msgspec

from control.deferred.leases import LeaseLost
from control.eval_runs.claims import Claim
from evals.gate import GateVerdict
from evals.slices.item import Source
from storage.storable_text import storable

Connection: TypeAlias = "asyncpg.Connection[Any]"

# An existing item stays: a worker stored it and was killed before it could report that.
_STORE = """
WITH held AS (SELECT FROM evals.{table} WHERE id = $1 AND lease_id = $2),
     stored AS (INSERT INTO evals.items
                       (run_id, slice, seed, cluster, answer, score, request_id, latency_ms, error_code)
                SELECT $3, $4, $5, $6, $7, $8, $9, $10, $11 FROM held ON CONFLICT DO NOTHING)
SELECT EXISTS (SELECT FROM held)
"""
_ANSWERED = "SELECT slice, array_agg(seed) AS seeds FROM evals.items WHERE run_id = $1 GROUP BY slice"
_SCORES = "SELECT slice, seed, cluster, score FROM evals.items WHERE run_id = $1"
_PLANNED = "SELECT slice, items FROM evals.run_slices WHERE run_id = $1"
_SLICE_VERSION = """
WITH made AS (INSERT INTO evals.slice_versions (slice, version, about, goal) VALUES ($1, $2, $3, $4)
              ON CONFLICT (slice, version) DO NOTHING RETURNING id)
SELECT id FROM made UNION ALL SELECT id FROM evals.slice_versions WHERE slice = $1 AND version = $2 LIMIT 1
"""
_BEGIN_SLICE = """
UPDATE evals.run_slices SET slice_version_id = coalesce(slice_version_id, $3) WHERE run_id = $1 AND slice = $2
RETURNING slice_version_id
"""
_MODEL_VERSION = """
WITH made AS (INSERT INTO evals.model_versions (model, pool, engine_model) VALUES ($1, $2, $3)
              ON CONFLICT (model, pool, engine_model) DO NOTHING RETURNING id)
SELECT id FROM made UNION ALL
SELECT id FROM evals.model_versions WHERE model = $1 AND pool = $2 AND engine_model = $3 LIMIT 1
"""
_BEGIN_RUN = """
UPDATE evals.runs SET model_version_id = coalesce(model_version_id, $2) WHERE id = $1 RETURNING model_version_id
"""
_DRAW = "UPDATE evals.run_slices SET items = greatest(items, $3) WHERE run_id = ANY ($1::uuid[]) AND slice = $2"
_NOTE_VERDICT = "UPDATE evals.comparisons SET verdict = $3 WHERE id = $1 AND lease_id = $2"


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """An item with its answer, in stored form."""

    run_id: UUID
    slice: str
    seed: int
    cluster: str
    answer: str
    score: float
    request_id: str | None
    latency_ms: float
    error_code: str | None


async def store(connection: Connection, held: Claim, scored: Scored) -> None:
    """Store an item's answer, once. Raises LeaseLost, and then stores nothing."""
    values = msgspec.structs.asdict(scored) | {"answer": storable(scored.answer)}
    if not await connection.fetchval(_STORE.format(table=held.table), held.id, held.lease_id, *values.values()):
        raise LeaseLost


async def answered(connection: Connection, run_id: UUID) -> dict[str, set[int]]:
    """By slice, the answered seeds of a run."""
    return {row["slice"]: set(row["seeds"]) for row in await connection.fetch(_ANSWERED, run_id)}


async def scores(connection: Connection, run_id: UUID) -> dict[tuple[str, int], tuple[str, float]]:
    """By slice and seed: the cluster and the score of every answer of a run."""
    rows = await connection.fetch(_SCORES, run_id)
    return {(row["slice"], row["seed"]): (row["cluster"], row["score"]) for row in rows}


async def planned(connection: Connection, run_id: UUID) -> dict[str, int]:
    """By slice, the number of items to ask."""
    return {row["slice"]: row["items"] for row in await connection.fetch(_PLANNED, run_id)}


async def draw(connection: Connection, run_ids: list[UUID], wanted: Mapping[str, int]) -> None:
    """Raise the number of items of each slice to ask in all these runs."""
    async with connection.transaction():
        for name, items in wanted.items():
            await connection.execute(_DRAW, run_ids, name, items)


async def note_verdict(connection: Connection, held: Claim, found: GateVerdict) -> None:
    """Store a comparison's new verdict in place of the previous one."""
    await connection.execute(_NOTE_VERDICT, held.id, held.lease_id, msgspec.json.encode(found).decode())


async def begin_slice(connection: Connection, run_id: UUID, source: Source) -> bool:
    """Record which version of a slice a run asks; false if it began with another one, so that it cannot continue."""
    version_id = await _version_of(connection, _SLICE_VERSION, source.name, source.version, source.about, source.goal)
    begun_with: UUID = await connection.fetchval(_BEGIN_SLICE, run_id, source.name, version_id)
    return begun_with == version_id


async def begin_run(connection: Connection, run_id: UUID, model: str, pool: str, engine_model: str) -> bool:
    """Record which version of a model a run asks; false if it began with another one, so that it cannot continue."""
    version_id = await _version_of(connection, _MODEL_VERSION, model, pool, engine_model)
    begun_with: UUID = await connection.fetchval(_BEGIN_RUN, run_id, version_id)
    return begun_with == version_id


async def _version_of(connection: Connection, statement: str, *values: object) -> UUID:
    """The version's id. If several callers create it at once, the others see it only in their next statement."""
    while (found := await connection.fetchval(statement, *values)) is None:
        continue
    version_id: UUID = found
    return version_id
