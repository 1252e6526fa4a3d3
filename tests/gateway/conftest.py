"""A whole platform that several test files share, and ways to a database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from storage.engine import lazy_pool
from tests.deployment import ROOT
from tests.gateway.auth.wire import Wire
from tests.gateway.slow_platform import SlowPlatform, slow_platform

CODE = ROOT / "models" / "slipstream-code"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that ask the platform share its one start."""
    if "platform" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("slow platform"))


@pytest.fixture(scope="package")
async def platform(new_postgres_url: Callable[[], Awaitable[str]], valkey_url: str) -> AsyncIterator[SlowPlatform]:
    """Gateway, router and fake engine behind links; between tests all parts are up and at full speed. `gaps` fills
    gaps."""
    async with slow_platform(await new_postgres_url(), valkey_url, code_tokenizer=CODE) as running:
        yield running


@pytest.fixture
async def pool(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Pool[Any]]:
    """Connections to a database of the test's own."""
    pool = await lazy_pool(fresh_postgres_url, size=3, connect_timeout_s=5)
    yield pool
    pool.terminate()


@pytest.fixture
async def wire(fresh_postgres_url: str, data_folder: Path) -> AsyncIterator[Wire]:
    """A wire to the test's database, connected."""
    wire = Wire(fresh_postgres_url, data_folder.parent)
    await wire.connect()
    yield wire
    wire.flowing.set()
    await wire.cut()
