"""What the command line does with tenants and keys, and what a keyring then thinks of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from contracts.errors import InvalidField, NotFound, RevokedKey
from gateway.auth.config import AuthConfig
from gateway.auth.keyring import Keyring
from gateway.auth.keys import hash_of
from gateway.db.engine import connect
from gateway.limits.levels import MAX_MICRO, MAX_PER_DAY, MAX_PER_MINUTE, Limits
from gateway.tenants.api_key import CreatedKey, create_key, list_keys, revoke_key
from gateway.tenants.demo import ensure_demo
from gateway.tenants.organizations import ensure_organization, ensure_project

PEPPER = b"p" * 32


@pytest.fixture
async def connection(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """SQL on the test's database."""
    connection = await connect(fresh_postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
async def project(connection: asyncpg.Connection[Any]) -> UUID:
    """A project of organization `acme`."""
    organization_id, _ = await ensure_organization(connection, "acme")
    project_id, _ = await ensure_project(connection, organization_id, "ide")
    return project_id


async def test_a_created_key_opens_the_door_with_its_limits(
    connection: asyncpg.Connection[Any], project: UUID, fresh_postgres_url: str
) -> None:
    limits = Limits(requests_per_minute=60, tokens_per_minute=None, max_concurrency=2)
    expires_at = datetime.now(UTC) + timedelta(days=1)
    created = await create_key(connection, PEPPER, project, "laptop", limits, expires_at)
    keyring = Keyring(fresh_postgres_url, PEPPER, AuthConfig())
    await keyring.start()
    try:
        record = await keyring.identify(created.secret)
        assert record.caller.key_id == str(created.key.id)
        assert [rule.limits for rule in record.levels.rules] == [limits]
        assert record.expires_at == pytest.approx(expires_at.timestamp(), abs=1e-6)
        await revoke_key(connection, "laptop")
        async with asyncio.timeout(20):
            while keyring.cached(created.secret):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        with pytest.raises(RevokedKey):
            await keyring.identify(created.secret)
    finally:
        await keyring.stop()


async def test_the_secret_is_stored_nowhere(connection: asyncpg.Connection[Any], project: UUID) -> None:
    created = await create_key(connection, PEPPER, project, "laptop")
    row = await connection.fetchrow("SELECT * FROM gateway.api_keys")
    assert row is not None
    assert row["hash"] == hash_of(created.secret, PEPPER)
    assert created.secret not in str(dict(row))
    assert created.secret not in repr(created)
    assert created.secret[8:40] not in str(await list_keys(connection))


async def test_keys_are_listed_with_their_state_for_all_or_one_organization(
    connection: asyncpg.Connection[Any], project: UUID
) -> None:
    now = datetime.now(UTC)
    other, _ = await ensure_organization(connection, "other")
    elsewhere, _ = await ensure_project(connection, other, "p")
    first = await create_key(connection, PEPPER, project, "first", Limits(tokens_per_minute=5))
    second = await create_key(connection, PEPPER, project, "second", expires_at=now + timedelta(hours=1))
    third = await create_key(connection, PEPPER, elsewhere, "third")
    await revoke_key(connection, str(first.key.id))

    keys = await list_keys(connection)
    assert [key.name for key in keys] == ["first", "second", "third"]
    assert [key.state(now) for key in keys] == ["revoked", "active", "active"]
    assert keys[1].state(now + timedelta(hours=2)) == "expired"
    assert keys[0].limits == Limits(tokens_per_minute=5)
    assert keys[1] == second.key
    assert (keys[0].organization, keys[0].project) == ("acme", "ide")
    assert await list_keys(connection, "other") == [third.key]
    assert await list_keys(connection, "nobody") == []


@pytest.mark.parametrize("by", ["id", "display", "name"])
async def test_a_key_is_revoked_by_id_display_or_name(
    by: str, connection: asyncpg.Connection[Any], project: UUID
) -> None:
    created, other = [await create_key(connection, PEPPER, project, name) for name in ("mine", "other")]
    which = str(getattr(created.key, by))
    revoked = await revoke_key(connection, which)
    assert revoked.id == created.key.id
    assert revoked.revoked_at is not None
    assert await revoke_key(connection, which) == revoked  # again: the first time stands
    assert [key.revoked_at is None for key in await list_keys(connection)] == [False, True]
    assert other.key.revoked_at is None


async def test_an_ambiguous_name_revokes_nothing_until_one_is_left(
    connection: asyncpg.Connection[Any], project: UUID
) -> None:
    twins = [await create_key(connection, PEPPER, project, "twin") for _ in range(2)]
    with pytest.raises(InvalidField, match="2 keys are called that") as caught:
        await revoke_key(connection, "twin")
    assert all(str(twin.key.id) in caught.value.message for twin in twins)
    await revoke_key(connection, str(twins[0].key.id))
    assert (await revoke_key(connection, "twin")).id == twins[1].key.id
    with pytest.raises(NotFound, match="nobody"):
        await revoke_key(connection, "nobody")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, "expires_at"),
        ({"expires_at": datetime(2099, 1, 1)}, "expires_at"),
        ({"limits": Limits(requests_per_minute=0)}, "requests_per_minute"),
        ({"limits": Limits(max_concurrency=1_000_000_001)}, "max_concurrency"),
        ({"limits": Limits(tokens_per_minute=2**40)}, "tokens_per_minute"),
    ],
)
async def test_a_key_out_of_range_is_refused(
    changes: dict[str, Any], field: str, connection: asyncpg.Connection[Any], project: UUID
) -> None:
    with pytest.raises(InvalidField) as caught:
        await create_key(connection, PEPPER, project, **{"name": "k", **changes})
    assert caught.value.param == field
    assert await list_keys(connection) == []


async def test_a_key_needs_a_project(connection: asyncpg.Connection[Any]) -> None:
    with pytest.raises(NotFound, match="project"):
        await create_key(connection, PEPPER, uuid4(), "k")


async def test_asking_for_an_organization_or_project_again_gives_the_same(
    connection: asyncpg.Connection[Any],
) -> None:
    first, created = await ensure_organization(connection, "acme")
    assert created
    assert await ensure_organization(connection, "acme") == (first, False)
    project, created = await ensure_project(connection, first, "p")
    assert created
    assert await ensure_project(connection, first, "p") == (project, False)


async def test_the_demo_key_is_made_once_even_by_starters_that_race(fresh_postgres_url: str) -> None:
    connections = [await connect(fresh_postgres_url) for _ in range(4)]
    try:
        made = await asyncio.gather(*(ensure_demo(connection, PEPPER) for connection in connections))
        (created,) = [each for each in made if each is not None]
        assert isinstance(created, CreatedKey)
        assert (created.key.organization, created.key.name) == ("demo", "demo")
        await revoke_key(connections[0], "demo")
        assert await ensure_demo(connections[0], PEPPER) is None  # revoked on purpose stays revoked
    finally:
        for connection in connections:
            await connection.close()


async def test_the_table_holds_exactly_the_limits_the_limiter_takes(
    connection: asyncpg.Connection[Any], project: UUID
) -> None:
    largest = dict.fromkeys(Limits.__struct_fields__, MAX_PER_MINUTE)
    largest |= {"tokens_per_day": MAX_PER_DAY, "money_micro_per_month": MAX_MICRO}
    limits = Limits(**largest)
    created = await create_key(connection, PEPPER, project, "k", limits)
    assert created.key.limits == limits
    for field, highest in largest.items():
        for outside in (-1 if field == "money_micro_per_month" else 0, highest + 1):
            with pytest.raises(asyncpg.CheckViolationError, match=field):
                await connection.execute(f"UPDATE gateway.limits SET {field} = {outside}")
