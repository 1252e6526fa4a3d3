"""A test's database is empty and nobody else's, whether an earlier test had it or not."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from tests.databases import OWNER, Databases, as_owner, name_in, url
from tests.waiting import eventually

ADD = "INSERT INTO gateway.organizations (name) SELECT 'another' FROM generate_series(1, {count})"
COUNT = "SELECT nextval('gateway.prices_version_seq')"
ALTERING = (
    "ALTER TABLE gateway.organizations ADD COLUMN more integer",
    "ALTER TABLE gateway.organizations DISABLE TRIGGER ALL; ALTER TABLE gateway.organizations ENABLE TRIGGER ALL",
    "CREATE TABLE gateway.one_more (at date)",
    "REVOKE SELECT ON gateway.organizations FROM slipstream_app",
    "UPDATE slipstream_version SET version_num = '0001'",
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Kolkata''', current_database()); END $$",
)


async def _after(databases: Databases, *statements: str) -> str:
    """A database in which an earlier test did this."""
    earlier = await databases.copy()
    connection = await asyncpg.connect(as_owner(earlier))
    for statement in statements:
        await connection.execute(statement)
    await connection.close()
    await databases.give_back(earlier)
    return earlier


async def _taken(databases: Databases, wanted: str) -> bool:
    """Whether a test would get this database, when it gets all that may be used again."""
    copied, taken = databases.copied, []
    while databases.copied == copied:
        taken.append(await databases.take())
    for one in taken:
        await databases.give_back(one)
    return wanted in taken


@pytest.mark.parametrize("rows", [1, 20_000])
async def test_rows_and_numbers_of_an_earlier_test_are_gone(databases: Databases, rows: int) -> None:
    earlier = await _after(databases, ADD.format(count=rows), COUNT)
    await eventually(lambda: _taken(databases, earlier))
    connection = await asyncpg.connect(as_owner(earlier))
    assert await connection.fetchval("SELECT count(*) FROM gateway.organizations") == 0
    assert await connection.fetchval(COUNT) == 1
    await connection.close()


async def test_a_database_that_a_connection_is_open_to_is_nobody_elses(databases: Databases) -> None:
    earlier = await databases.copy()
    connection = await asyncpg.connect(earlier)
    await databases.give_back(earlier)
    assert not await _taken(databases, earlier)
    await connection.close()
    await eventually(lambda: _taken(databases, earlier))


@pytest.mark.parametrize("statement", ALTERING)
async def test_a_database_with_other_tables_or_rights_is_dropped(
    databases: Databases, postgres_server: Path, statement: str
) -> None:
    altered = await _after(databases, statement)
    administrator = await asyncpg.connect(url(postgres_server, "postgres", OWNER))

    async def dropped() -> bool:
        assert not await _taken(databases, altered)
        exists = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
        return not await administrator.fetchval(exists, name_in(altered))

    await eventually(dropped)
    await administrator.close()
