"""Two gateways over one database, and people who sign in to them with a browser's habits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from infra.local.folders import APPLICATION_ROLE
from infra.local.postgres import create_database
from tests.gateway.admin.lone_gateway import LoneGateway, lone_gateway
from tests.gateway.console.browser import Town


@pytest.fixture(scope="session")
async def console_postgres_url(postgres_server: Path, _migrated_template: str) -> str:
    """A database of these tests' own."""
    name = "test_console"
    await create_database(postgres_server, name, _migrated_template)
    return f"postgresql://{APPLICATION_ROLE}@/{name}?host={postgres_server}"


@pytest.fixture(scope="session")
async def console_gateway(console_postgres_url: str, valkey_url: str) -> AsyncIterator[LoneGateway]:
    """Behind a proxy on this machine, which says from where and how a browser came."""
    proxies = {"SLIPSTREAM_GATEWAY__CONNECTIONS__TRUSTED_PROXIES": '["127.0.0.1"]'}
    async with lone_gateway(console_postgres_url, valkey_url, **proxies) as running:
        yield running


@pytest.fixture(scope="session")
async def other_gateway(
    console_gateway: LoneGateway, console_postgres_url: str, valkey_url: str
) -> AsyncIterator[LoneGateway]:
    """Another instance of the same deployment, with no proxy before it."""
    async with lone_gateway(console_postgres_url, valkey_url, pepper=console_gateway.pepper) as running:
        yield running


@pytest.fixture(scope="session")
async def town(console_gateway: LoneGateway, console_postgres_url: str) -> AsyncIterator[Town]:
    """The operating organization and two tenants."""
    database = await asyncpg.connect(console_postgres_url)
    town = Town(console_gateway.url, console_gateway.pepper, database)
    await town.found()
    yield town
    await database.close()
