"""Proves that the audit log is intact, by recomputing every row's hash over its content and the previous hash.

A chain alone cannot show that its newest rows were cut off, or that all of it was recomputed. So heads are recorded
elsewhere (`heads.py`), and the log must contain each of them.
"""

from __future__ import annotations

import hashlib
from typing import Any

import asyncpg
import msgspec

FIRST_HASH = bytes(32)
BATCH = 1_000

ROWS = """
SELECT id, ((extract(epoch FROM at) * 1000000)::bigint)::text AS micro, actor_kind, actor_id::text, actor_name,
       admin_key_id::text, request_id, organization_id::text, action, subject_kind, subject_id, before::text,
       after::text, previous_hash, hash
  FROM gateway.audit_log ORDER BY id
"""
FIELDS = (
    "id", "micro", "actor_kind", "actor_id", "actor_name", "admin_key_id", "request_id", "organization_id", "action",
    "subject_kind", "subject_id", "before", "after",
)  # fmt: skip
OWNS = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'gateway.audit_log'::regclass"
OWNED = (
    "the application's database role owns its tables and could alter the audit log and the ledger; give it a role that "
    "owns nothing, and the owner to local.migration_database_url"
)


class Head(msgspec.Struct, frozen=True):
    """A row's id and hash, which a verification returns for the next one."""

    id: int
    hash: str

    def __str__(self) -> str:
        return f"{self.id}:{self.hash}"


class Verdict(msgspec.Struct, frozen=True):
    """A verification's result. rows: number of intact rows. head: the last of them; None if there are none. problem:
    the first broken row and its fault; None when all are intact."""

    rows: int
    head: Head | None
    problem: str | None


def text_of(fields: list[str | None]) -> str:
    """The text that a row's hash covers: every field after its length in bytes, `-` for null."""
    return ",".join("-" if field is None else f"{len(field.encode())}:{field}" for field in fields)


async def verify(connection: asyncpg.Connection[Any], *remembered: Head) -> Verdict:
    """Check the whole log, oldest first, and every remembered head, in one snapshot.

    Raises asyncpg's errors.
    """
    heads: dict[int, set[str]] = {}
    for each in remembered:
        heads.setdefault(each.id, set()).add(each.hash)
    previous, expected_id, head = FIRST_HASH, 1, None
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        async for row in connection.cursor(ROWS, prefetch=BATCH):
            problem = _problem(row, previous, expected_id, heads.get(row["id"], set()))
            if problem is not None:
                return Verdict(expected_id - 1, head, problem)
            previous, expected_id = row["hash"], row["id"] + 1
            head = Head(row["id"], row["hash"].hex())
    cut = min((each for each in heads if each >= expected_id), default=None)
    if cut is not None:
        problem = f"row {expected_id} is missing: the log ends before row {cut}, which was its head once"
        return Verdict(expected_id - 1, head, problem)
    return Verdict(expected_id - 1, head, None)


async def may_alter(connection: asyncpg.Connection[Any]) -> bool:
    """Whether the connection's role has the rights of the log's owner, and could disable its triggers."""
    owner: bool = await connection.fetchval(OWNS)
    return owner


def _problem(row: asyncpg.Record, previous: bytes, expected_id: int, remembered: set[str]) -> str | None:
    if row["id"] != expected_id:
        return f"row {expected_id} is missing"
    if row["previous_hash"] != previous:
        return f"row {row['id']} does not follow the row before it"
    fields = [str(row[name]) if row[name] is not None else None for name in FIELDS]
    if hashlib.sha256(previous + text_of(fields).encode()).digest() != row["hash"]:
        return f"row {row['id']} was altered: its content does not match its hash"
    if remembered - {row["hash"].hex()}:
        return f"row {row['id']} differs from the recorded head: the log was rewritten"
    return None
