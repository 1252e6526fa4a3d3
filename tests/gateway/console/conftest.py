"""Two gateways over one database, and people who sign in to them with a browser's habits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
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
async def people(console_postgres_url: str) -> AsyncIterator[Town]:
    """The organizations, before there is a gateway."""
    database = await asyncpg.connect(console_postgres_url)
    town = Town(database)
    await town.found()
    yield town
    await database.close()


@pytest.fixture(scope="session")
async def console_gateway(people: Town, console_postgres_url: str, valkey_url: str) -> AsyncIterator[LoneGateway]:
    """Behind a proxy on this machine, which says from where and how a browser came; with a provider of identities that
    runs where a test starts it."""
    groups = [
        {"group": "tenants", "role": "viewer", "organization": str(people.organizations["ours"])},
        {"group": "accounts", "role": "billing"},
        {"group": "platform", "role": "admin"},
    ]
    settings: dict[str, Any] = {
        "SLIPSTREAM_GATEWAY__CONNECTIONS__TRUSTED_PROXIES": '["127.0.0.1"]',
        "SLIPSTREAM_GATEWAY__CONSOLE__OIDC__ISSUER": f"http://127.0.0.1:{people.provider_port}",
        "SLIPSTREAM_GATEWAY__CONSOLE__OIDC__CLIENT_ID": "slipstream",
        "SLIPSTREAM_GATEWAY__CONSOLE__OIDC__CLIENT_SECRET_ENV": "OIDC_SECRET",
        "SLIPSTREAM_GATEWAY__CONSOLE__OIDC__GROUPS": msgspec.json.encode(groups).decode(),
        "OIDC_SECRET": "of-the-test",
    }
    async with lone_gateway(console_postgres_url, valkey_url, pepper=people.pepper, **settings) as running:
        yield running


@pytest.fixture(scope="session")
async def other_gateway(people: Town, console_postgres_url: str, valkey_url: str) -> AsyncIterator[LoneGateway]:
    """Another instance of the same deployment, with no proxy before it and without the provider."""
    async with lone_gateway(console_postgres_url, valkey_url, pepper=people.pepper) as running:
        yield running


@pytest.fixture(scope="session")
async def town(people: Town, console_gateway: LoneGateway) -> Town:
    """The operating organization and two tenants, and where they sign in."""
    people.url = console_gateway.url
    return people
