"""A gateway to administer, and people who may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import asyncpg
import pytest

from infra.local.folders import APPLICATION_ROLE
from infra.local.postgres import create_database
from tests.gateway.admin.lone_gateway import LoneGateway, lone_gateway
from tests.gateway.admin.people import People


@pytest.fixture(scope="session")
async def admin_postgres_url(postgres_server: Path, _migrated_template: str) -> str:
    """A database of these tests' own: a gateway writes its models into it, which others must not follow."""
    name = "test_administration"
    await create_database(postgres_server, name, _migrated_template)
    return f"postgresql://{APPLICATION_ROLE}@/{name}?host={postgres_server}"


@pytest.fixture(scope="session")
async def admin_gateway(admin_postgres_url: str, valkey_url: str) -> AsyncIterator[LoneGateway]:
    """One for all tests of this folder."""
    async with lone_gateway(admin_postgres_url, valkey_url) as running:
        yield running


@pytest.fixture(scope="session")
async def people(admin_gateway: LoneGateway, admin_postgres_url: str) -> AsyncIterator[People]:
    """Everybody."""
    database = await asyncpg.connect(admin_postgres_url)
    async with aiohttp.ClientSession() as session:
        people = People(session, admin_gateway.url, database, admin_gateway.pepper)
        await people.move_in()
        yield people
    await database.close()
