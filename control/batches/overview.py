"""Batches of all tenants, for the operator's commands."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from control.batches.machine import UNFINISHED
from control.batches.objects import batch_object
from storage.rows import record_of

_NEWEST = f"""
SELECT batches.id, batches.created_at, organizations.name AS organization, projects.name AS project, status, model,
       total, completed, failed
  FROM gateway.batches
  JOIN gateway.organizations ON organizations.id = batches.organization_id
  JOIN gateway.projects ON projects.id = batches.project_id
 WHERE $1::uuid IS NULL OR batches.organization_id = $1
 ORDER BY status NOT IN ({", ".join(f"'{each}'" for each in UNFINISHED)}), batches.created_at DESC, batches.id LIMIT $2
"""  # noqa: S608
_ONE = "SELECT * FROM gateway.batches WHERE id = $1"


class OwnedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch in a list, with its owner's names."""

    id: str
    created_at: datetime
    organization: str
    project: str
    status: str
    model: str | None
    total: int
    completed: int
    failed: int


async def newest_batches(
    connection: asyncpg.Connection[Any], organization_id: UUID | None, limit: int
) -> list[OwnedBatch]:
    """The newest batches, unfinished ones first. organization_id: None for all organizations."""
    return [record_of(OwnedBatch, row) for row in await connection.fetch(_NEWEST, organization_id, limit)]


async def whole_batch(connection: asyncpg.Connection[Any], batch_id: str) -> dict[str, object] | None:
    """A batch as its tenant sees it, with its owner's ids; None if it does not exist."""
    row = await connection.fetchrow(_ONE, batch_id)
    if row is None:
        return None
    owner = {name: str(row[name]) for name in ("organization_id", "project_id", "key_id")}
    return {**owner, **msgspec.to_builtins(batch_object(row))}
