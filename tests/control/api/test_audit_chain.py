"""The audit log: one chain however many write, append-only, and any change to it is found and named."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from control.audit.chain import FIELDS, ROWS, text_of, verify
from storage.audit_log import Actor, Change, record
from storage.engine import connect
from tests.control.api.tampering import tamper
from tests.databases import as_owner

ACTOR = Actor.command("tést,3:x", "slipstream keys create")


async def write(connection: asyncpg.Connection[Any], count: int) -> None:
    for number in range(count):
        change = Change(
            action="project.update",
            subject_id=f"p{number}",
            organization_id=uuid4() if number % 2 else None,
            before={"name": "a", "übel": [1, None]} if number % 3 else None,
            after={"name": "b\u2028", "n": number},
        )
        await record(connection, ACTOR, change)


async def test_writers_at_once_keep_one_chain(connection: asyncpg.Connection[Any], fresh_postgres_url: str) -> None:
    async def writer(rollback: bool) -> None:
        own = await connect(fresh_postgres_url)
        for _ in range(5):
            transaction = own.transaction()
            await transaction.start()
            await write(own, 2)
            await (transaction.rollback() if rollback else transaction.commit())
        await own.close()

    empty = await verify(connection)
    assert (empty.rows, empty.head, empty.problem) == (0, None, None)
    await asyncio.gather(*(writer(rollback=number % 4 == 0) for number in range(8)))
    verdict = await verify(connection)
    assert (verdict.rows, verdict.problem) == (60, None)


async def test_the_database_refuses_changes(connection: asyncpg.Connection[Any], fresh_postgres_url: str) -> None:
    await write(connection, 3)
    owner = await connect(as_owner(fresh_postgres_url))
    for statement in (
        "UPDATE gateway.audit_log SET actor_name = 'x' WHERE id = 2",
        "DELETE FROM gateway.audit_log WHERE id = 2",
        "TRUNCATE gateway.audit_log",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await owner.execute(statement)
    await owner.close()
    assert (await verify(connection)).rows == 3


async def test_any_altered_column_is_found_in_its_row(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    await write(connection, 6)
    await tamper(fresh_postgres_url, "CREATE TABLE public.kept AS SELECT * FROM gateway.audit_log WHERE id = 4")
    for change in (
        "at = at + interval '1 microsecond'", "actor_kind = 'member'", "actor_id = gen_random_uuid()",
        "actor_name = 'somebody'", "admin_key_id = gen_random_uuid()", "request_id = 'r'",
        "organization_id = gen_random_uuid()", "action = 'project.create'", "subject_kind = 'key'",
        "subject_id = subject_id || '0'", "before = '{}'", "after = after || '{\"n\": 7}'", "after = NULL",
        "hash = sha256('x')", "previous_hash = sha256('x')",
    ):  # fmt: skip
        await tamper(fresh_postgres_url, f"UPDATE gateway.audit_log SET {change} WHERE id = 4")
        verdict = await verify(connection)
        assert (verdict.rows, "row 4 " in str(verdict.problem)) == (3, True), change
        await tamper(
            fresh_postgres_url,
            "DELETE FROM gateway.audit_log WHERE id = 4",
            "INSERT INTO gateway.audit_log SELECT * FROM public.kept",
        )
        assert (await verify(connection)).problem is None


async def test_removed_swapped_and_inserted_rows_are_found(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    await write(connection, 6)
    await tamper(fresh_postgres_url, "DELETE FROM gateway.audit_log WHERE id = 3")
    assert (await verify(connection)).problem == "row 3 is missing"
    # closing the gap breaks the link instead
    await tamper(fresh_postgres_url, "UPDATE gateway.audit_log SET id = 3 WHERE id = 4")
    assert "row 3 does not follow" in str((await verify(connection)).problem)


async def test_the_two_ways_to_compute_a_hash_agree_and_lengths_keep_fields_apart(
    connection: asyncpg.Connection[Any],
) -> None:
    await write(connection, 4)
    for row in await connection.fetch(ROWS):
        text = await connection.fetchval(
            "SELECT gateway.audit_text(entry) FROM gateway.audit_log entry WHERE id = $1", row["id"]
        )
        assert text == text_of([None if row[name] is None else str(row[name]) for name in FIELDS])
        assert hashlib.sha256(row["previous_hash"] + text.encode()).digest() == row["hash"]
    assert text_of(["a", "bc"]) != text_of(["ab", "c"])
    assert text_of([None, "-"]) != text_of(["-", None])
