"""A platform that several test files share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.hostile.hostile_platform import HostilePlatform, hostile_platform


@pytest.fixture(scope="module")
async def hostile(new_postgres_url: Callable[[], Awaitable[str]], valkey_url: str) -> AsyncIterator[HostilePlatform]:
    """Gateway with a heartbeat, router, fake engine."""
    async with hostile_platform(await new_postgres_url(), valkey_url) as running:
        yield running
