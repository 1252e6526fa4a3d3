"""A gateway to administer, and people who may."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import asyncpg
import pytest

from tests.gateway.admin.lone_gateway import LoneGateway, lone_gateway
from tests.gateway.admin.people import People


@pytest.fixture(scope="session")
async def admin_gateway(postgres_url: str, valkey_url: str) -> AsyncIterator[LoneGateway]:
    """One for all tests of this folder."""
    async with lone_gateway(postgres_url, valkey_url) as running:
        yield running


@pytest.fixture(scope="session")
async def people(admin_gateway: LoneGateway, postgres_url: str) -> AsyncIterator[People]:
    """Everybody."""
    database = await asyncpg.connect(postgres_url)
    async with aiohttp.ClientSession() as session:
        people = People(session, admin_gateway.url, database, admin_gateway.pepper)
        await people.move_in()
        yield people
    await database.close()
