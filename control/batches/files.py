"""Rows of files, with their owners and expiry times. A file's row is written before its content and deleted after it,
so that all contents in the store have a row, even after a crash.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import asyncpg

from contracts.errors import BodyTooLarge, Conflict, NotFound
from contracts.generation import Caller
from contracts.misfit import shortened
from control.batches.config import MAX_FILES, ORGANIZATION_BYTES
from control.batches.machine import UNFINISHED
from control.batches.objects import ANY_FILE, FileObject, Listed, file_object

Connection: TypeAlias = "asyncpg.Connection[Any]"

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('files of ' || $1, 0))"
_HELD = "SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM gateway.files WHERE organization_id = $1"
_BEGIN = """
INSERT INTO gateway.files (id, organization_id, project_id, key_id, purpose, filename, bytes, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, now() + make_interval(secs => $8))
    ON CONFLICT (id) DO UPDATE SET bytes = excluded.bytes
"""
_FINISH = "UPDATE gateway.files SET stored = true WHERE id = $1 AND project_id = $2 RETURNING *"
_THERE = "stored AND expires_at > now() AND project_id = $1"
_FIND = f"SELECT * FROM gateway.files WHERE id = $2 AND {_THERE}"  # noqa: S608
_LIST = """
SELECT * FROM gateway.files
 WHERE stored AND expires_at > now() AND project_id = $1 AND ($2::text IS NULL OR purpose = $2)
   AND ($3::text IS NULL OR (created_at, id) {compared} (SELECT created_at, id FROM gateway.files WHERE id = $3))
 ORDER BY created_at {order}, id {order} LIMIT $4
"""
_NEEDED = f"""
SELECT id FROM gateway.batches WHERE input_file_id = $1 AND project_id = $2
   AND status IN ({", ".join(f"'{each}'" for each in UNFINISHED)}) LIMIT 1
"""  # noqa: S608
_REMOVE = "UPDATE gateway.files SET stored = false, expires_at = now() WHERE id = $1"
_FORGET = "DELETE FROM gateway.files WHERE id = $1 AND NOT stored"
# An upload whose gateway died is kept for a day, and a file of an unfinished batch until the batch ends.
_LEFT_OVER = f"""
SELECT id FROM gateway.files
 WHERE (expires_at < now() OR NOT stored AND created_at < now() - interval '1 day')
   AND NOT EXISTS (SELECT FROM gateway.batches
                    WHERE files.id IN (input_file_id, output_file_id, error_file_id)
                      AND status IN ({", ".join(f"'{each}'" for each in UNFINISHED)}))
 LIMIT 1000
"""  # noqa: S608


async def require_room(connection: Connection, owner: Caller, size_bytes: int, param: str | None = "file") -> None:
    """Raise BodyTooLarge if the organization has no room for a file of at least this size. param: the error's. Outputs
    of batches have no other limit, so each unfinished batch may exceed this one by its output."""
    row = await connection.fetchrow(_HELD, owner.organization_id)
    assert row is not None
    if row[0] >= MAX_FILES:
        raise BodyTooLarge(
            f"This organization has {row[0]} files; the limit is {MAX_FILES}. Delete files that you no longer need, "
            "or let files expire sooner ('expires_after').",
            param=param,
        )
    needed_bytes = size_bytes + row[1]
    if needed_bytes > ORGANIZATION_BYTES:
        raise BodyTooLarge(
            f"The organization's files would have {needed_bytes} bytes; the limit is {ORGANIZATION_BYTES}. Delete "
            "files that you no longer need.",
            param=param,
        )


async def begin(
    connection: Connection, owner: Caller, file_id: str, purpose: str, filename: str, size_bytes: int, kept_s: int
) -> None:
    """Record a file whose content follows. Raises BodyTooLarge if the organization has no room for an upload; outputs
    of its batches are always kept."""
    async with connection.transaction():
        await connection.execute(_LOCK, owner.organization_id)
        if purpose == "batch":
            await require_room(connection, owner, size_bytes)
        ids = owner.organization_id, owner.project_id, owner.key_id
        await connection.execute(_BEGIN, file_id, *ids, purpose, filename, size_bytes, kept_s)


async def finish(connection: Connection, owner: Caller, file_id: str) -> FileObject:
    """Record that the content is stored."""
    row = await connection.fetchrow(_FINISH, file_id, owner.project_id)
    assert row is not None
    return file_object(row)


async def find(connection: Connection, owner: Caller, file_id: str) -> FileObject:
    """A file of the caller's project. Raises NotFound."""
    row = await connection.fetchrow(_FIND, owner.project_id, file_id) if fnmatchcase(file_id, ANY_FILE) else None
    if row is None:
        raise NotFound(
            f"There is no file {shortened(file_id)!r} in this project. It was deleted, has expired, or belongs to "
            "another project.",
            param="file_id",
        )
    return file_object(row)


async def listed(
    connection: Connection, owner: Caller, purpose: str | None, after: str | None, limit: int, *, ascending: bool
) -> Listed[FileObject]:
    """Files of the caller's project."""
    if after is not None:
        await find(connection, owner, after)
    order, compared = ("ASC", ">") if ascending else ("DESC", "<")
    statement = _LIST.format(order=order, compared=compared)
    rows = await connection.fetch(statement, owner.project_id, purpose, after, limit + 1)
    return list_of([file_object(row) for row in rows], limit)


def list_of(found: list[Any], limit: int) -> Listed[Any]:
    """Part of a list. found: one item more than `limit`, if the list continues."""
    data = found[:limit]
    ids = [each.id for each in data]
    return Listed(
        data=data, first_id=ids[0] if ids else None, last_id=ids[-1] if ids else None, has_more=len(found) > limit
    )


async def remove(connection: Connection, owner: Caller, file_id: str) -> None:
    """Hide a file whose content is about to be deleted. Raises NotFound, and Conflict while a batch needs it."""
    async with connection.transaction():
        await connection.execute(_LOCK, owner.organization_id)
        await find(connection, owner, file_id)
        if (batch_id := await connection.fetchval(_NEEDED, file_id, owner.project_id)) is not None:
            raise Conflict(f"The batch {batch_id} needs this file until it ends; cancel the batch, or wait.")
        await connection.execute(_REMOVE, file_id)


async def abandon(connection: Connection, _owner: Caller, file_id: str) -> None:
    """Let the next sweep delete a file that could not be stored."""
    await connection.execute(_REMOVE, file_id)


async def forget(connection: Connection, file_id: str) -> None:
    """Delete the row of a file whose content is deleted."""
    await connection.execute(_FORGET, file_id)


async def lock_files(connection: Connection, owner: Caller) -> None:
    """Prevent the removal of the organization's files until the transaction ends."""
    await connection.execute(_LOCK, owner.organization_id)


async def left_over(connection: Connection) -> list[str]:
    """Hide expired files and those left over from a crash, and return their ids for deletion."""
    ids = [row["id"] for row in await connection.fetch(_LEFT_OVER)]
    await connection.executemany(_REMOVE, [(each,) for each in ids])
    return ids
