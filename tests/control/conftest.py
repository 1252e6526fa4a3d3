"""A connection to a database of the test's own, and a whole platform that several test files share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from storage.engine import connect
from tests.deployment import ROOT
from tests.gateway.slow_platform import SlowPlatform, slow_platform

CODE = ROOT / "models" / "slipstream-code"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that ask this folder's platform share its one start."""
    if "platform" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("administered platform"))


@pytest.fixture
async def connection(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """To a database of the test's own."""
    connection = await connect(fresh_postgres_url)
    yield connection
    await connection.close()


@pytest.fixture(scope="package")
async def platform(new_postgres_url: Callable[[], Awaitable[str]], valkey_url: str) -> AsyncIterator[SlowPlatform]:
    """Gateway, router and fake engine behind links. `gaps` fills gaps."""
    async with slow_platform(await new_postgres_url(), valkey_url, code_tokenizer=CODE) as running:
        yield running
