"""Two gateways over one database, and people who sign in to them with a browser's habits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import msgspec
import pytest

from tests.control.api.lone_gateway import LoneGateway, lone_gateway
from tests.control.console.browser import Town

PROGRAM = "tests.control.console.quick_passwords"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that ask this folder's gateways share their one start."""
    if "people" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("console gateways"))


@pytest.fixture(scope="package")
async def console_postgres_url(new_postgres_url: Callable[[], Awaitable[str]]) -> str:
    return await new_postgres_url()


@pytest.fixture(scope="package")
async def people(console_postgres_url: str) -> AsyncIterator[Town]:
    """The organizations, before there is a gateway."""
    database = await asyncpg.connect(console_postgres_url)
    town = Town(database)
    await town.found()
    yield town
    await database.close()


@pytest.fixture(scope="package")
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
    settings |= {"program": PROGRAM, "pepper": people.pepper}
    async with lone_gateway(console_postgres_url, valkey_url, **settings) as running:
        yield running


@pytest.fixture(scope="package")
async def other_gateway(people: Town, console_postgres_url: str, valkey_url: str) -> AsyncIterator[LoneGateway]:
    """Another instance of the same deployment, with no proxy before it and without the provider."""
    async with lone_gateway(console_postgres_url, valkey_url, pepper=people.pepper, program=PROGRAM) as running:
        yield running


@pytest.fixture(scope="package")
async def town(people: Town, console_gateway: LoneGateway) -> Town:
    """The operating organization and two tenants, and where they sign in."""
    people.url = console_gateway.url
    return people
