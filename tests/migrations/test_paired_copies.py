"""Releases that run through the migration are judged on by what they began with, and can be taken back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import msgspec
from alembic.script import ScriptDirectory

from control.releases.judge import Policy
from migrations import run
from tests.control.releases.fleets import started


async def test_what_a_release_is_judged_by_goes_both_ways(empty_postgres_url: str) -> None:
    url = empty_postgres_url
    await asyncio.to_thread(run.upgrade, url)
    before = ScriptDirectory(str(Path(run.__file__).parent)).get_revision("0039").down_revision
    assert isinstance(before, str)
    connection = await asyncpg.connect(url)
    release = await started(connection)
    policy = msgspec.json.encode(Policy()).decode()
    await connection.execute("UPDATE gateway.releases SET policy = $1", policy)
    await connection.close()
    await asyncio.to_thread(run.downgrade, url, before)
    connection = await asyncpg.connect(url)
    old = msgspec.json.decode(await connection.fetchval("SELECT policy FROM gateway.releases"))
    assert "copy_tolerance" not in old
    assert list(old["weights"]) == ["ttft", "itl", "errors", "goodput", "slices", "reviews"]
    old["weights"]["itl"] = 0.2
    text = msgspec.json.encode(old).decode()
    await connection.execute("UPDATE gateway.releases SET policy = $1", text)
    await connection.close()
    await asyncio.to_thread(run.upgrade, url)
    connection = await asyncpg.connect(url)
    policy = await connection.fetchval("SELECT policy FROM gateway.releases WHERE id = $1", release.id)
    assert msgspec.json.decode(policy, type=Policy).alpha_of("shadow") == 0.0
    await connection.close()
    await asyncio.to_thread(run.downgrade, url, before)
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT policy FROM gateway.releases") == text
    await connection.close()
