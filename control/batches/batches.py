"""Creates, reads, lists and cancels batches for their tenants. Workers' statements are in `claims.py`."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import asyncpg
import msgspec

from contracts.errors import Conflict, InvalidField, NotFound, RateLimited
from contracts.generation import Caller
from contracts.misfit import shortened
from control.batches import files
from control.batches.config import KEPT_S, MAX_UNFINISHED, WINDOW_S
from control.batches.machine import CANCEL_ASKED, CANCELLABLE, UNFINISHED, BatchStatus
from control.batches.objects import ANY_BATCH, BATCH_ID, FILE_ID, BatchObject, Listed, NewBatch, batch_object, new_id

Connection: TypeAlias = "asyncpg.Connection[Any]"

_STATUSES = ", ".join(f"'{each}'" for each in UNFINISHED)
_COUNT = f"SELECT count(*) FROM gateway.batches WHERE organization_id = $1 AND status IN ({_STATUSES})"  # noqa: S608
_CREATE = f"""
INSERT INTO gateway.batches (id, organization_id, project_id, key_id, endpoint, input_file_id, metadata, output_seconds,
                             status, expires_at, output_file_id, error_file_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '{BatchStatus.VALIDATING}', now() + make_interval(secs => $9), $10, $11)
RETURNING *
"""  # noqa: S608
_FIND = "SELECT * FROM gateway.batches WHERE id = $2 AND project_id = $1"
_LIST = """
SELECT * FROM gateway.batches
 WHERE project_id = $1
   AND ($2::text IS NULL OR (created_at, id) < (SELECT created_at, id FROM gateway.batches WHERE id = $2))
 ORDER BY created_at DESC, id DESC LIMIT $3
"""
_CANCEL = f"""
UPDATE gateway.batches SET status = '{BatchStatus.CANCELLING}', cancelling_at = now()
 WHERE id = $1 AND status IN ({", ".join(f"'{each}'" for each in CANCELLABLE)}) RETURNING *
"""  # noqa: S608


async def create(connection: Connection, owner: Caller, body: NewBatch) -> BatchObject:
    """Create a batch, which a worker claims within seconds. Raises NotFound, InvalidField, RateLimited, and
    BodyTooLarge if the organization has no room for files."""
    require_storable(body.metadata or {})
    await _require_few(connection, owner)  # before the lock, which delays all of the organization's requests
    async with connection.transaction():
        await files.lock_files(connection, owner)
        try:
            file = await files.find(connection, owner, body.input_file_id)
        except NotFound as error:
            raise NotFound(error.message, param="input_file_id") from None
        if file.purpose != "batch":
            raise InvalidField(
                f"Invalid value for 'input_file_id': the purpose of {file.id} is '{file.purpose}', not 'batch'.",
                param="input_file_id",
            )
        await _require_few(connection, owner)
        await files.require_room(connection, owner, 1, param=None)
        row = await connection.fetchrow(
            _CREATE,
            new_id(BATCH_ID),
            owner.organization_id,
            owner.project_id,
            owner.key_id,
            body.endpoint,
            file.id,
            None if body.metadata is None else msgspec.json.encode(body.metadata).decode(),
            KEPT_S if body.output_expires_after is None else body.output_expires_after.seconds,
            WINDOW_S,
            new_id(FILE_ID),
            new_id(FILE_ID),
        )
    assert row is not None
    return batch_object(row)


async def _require_few(connection: Connection, owner: Caller) -> None:
    if await connection.fetchval(_COUNT, owner.organization_id) >= MAX_UNFINISHED:
        raise RateLimited(
            f"This organization has {MAX_UNFINISHED} unfinished batches, which is the limit. Wait until one ends, or "
            "cancel one.",
            retry_after_s=60.0,
        )


def require_storable(metadata: Mapping[str, str]) -> None:
    """Raise InvalidField for text that PostgreSQL refuses in JSON."""
    if any("\0" in text for pair in metadata.items() for text in pair):
        raise InvalidField("Invalid value for 'metadata': it has a NUL character. Remove it.", param="metadata")


async def find(connection: Connection, owner: Caller, batch_id: str) -> BatchObject:
    """A batch of the caller's project. Raises NotFound."""
    row = await connection.fetchrow(_FIND, owner.project_id, batch_id) if fnmatchcase(batch_id, ANY_BATCH) else None
    if row is None:
        raise NotFound(
            f"There is no batch {shortened(batch_id)!r} in this project. Check the id and the key's project.",
            param="batch_id",
        )
    return batch_object(row)


async def listed(connection: Connection, owner: Caller, after: str | None, limit: int) -> Listed[BatchObject]:
    """Batches of the caller's project, newest first."""
    if after is not None:
        await find(connection, owner, after)
    rows = await connection.fetch(_LIST, owner.project_id, after, limit + 1)
    return files.list_of([batch_object(row) for row in rows], limit)


async def cancel(connection: Connection, owner: Caller, batch_id: str) -> BatchObject:
    """Cancel a batch, which then starts no line. Idempotent. Raises NotFound, and Conflict if it is too late."""
    found = await find(connection, owner, batch_id)
    row = await connection.fetchrow(_CANCEL, batch_id)
    if row is not None:
        return batch_object(row)
    found = await find(connection, owner, batch_id)
    if found.status not in CANCEL_ASKED:
        raise Conflict(
            f"Batch {batch_id} has the status '{found.status}'. Only a 'validating' or 'in_progress' batch can be "
            "cancelled."
        )
    return found
