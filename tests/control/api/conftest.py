"""A gateway to administer, and people who may."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import asyncpg
import pytest

from tests.control.api.lone_gateway import LoneGateway, lone_gateway
from tests.control.api.people import People


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that ask this folder's gateway share its one start."""
    if "admin_gateway" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("admin gateway"))


@pytest.fixture(scope="package")
async def admin_postgres_url(new_postgres_url: Callable[[], Awaitable[str]]) -> str:
    """A database of these tests' own: a gateway writes its models into it, which others must not follow."""
    return await new_postgres_url()


@pytest.fixture(scope="package")
async def admin_gateway(admin_postgres_url: str, valkey_url: str) -> AsyncIterator[LoneGateway]:
    """One for all tests of this folder. It looks for news often."""
    settings: dict[str, Any] = {
        "SLIPSTREAM_GATEWAY__ADMIN__EVENTS__LOOK_EVERY_S": "0.1",
        "SLIPSTREAM_GATEWAY__ADMIN__EVENTS__BEAT_S": "0.3",
    }
    async with lone_gateway(admin_postgres_url, valkey_url, **settings) as running:
        yield running


@pytest.fixture(scope="package")
async def other_gateway(
    admin_gateway: LoneGateway, admin_postgres_url: str, valkey_url: str
) -> AsyncIterator[LoneGateway]:
    """Another one of the same deployment, with few descriptors and small bodies."""
    settings: dict[str, Any] = {
        "SLIPSTREAM_GATEWAY__REQUESTS__MAX_CONTAINERS": "100",
        "SLIPSTREAM_GATEWAY__REQUESTS__MAX_VALUES": "1000",
    }
    pepper = admin_gateway.pepper
    async with lone_gateway(admin_postgres_url, valkey_url, pepper=pepper, descriptors=100, **settings) as running:
        yield running


@pytest.fixture(scope="package")
async def people(admin_gateway: LoneGateway, admin_postgres_url: str) -> AsyncIterator[People]:
    database = await asyncpg.connect(admin_postgres_url)
    async with aiohttp.ClientSession() as session:
        people = People(session, admin_gateway.url, database, admin_gateway.pepper)
        await people.move_in()
        yield people
    await database.close()
