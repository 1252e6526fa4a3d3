"""A whole platform for coding agents, which run by night: they are npm packages of a few hundred MB."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.gateway.slow_platform import SlowPlatform, slow_platform


@pytest.fixture(scope="session")
async def platform(new_postgres_url: Callable[[], Awaitable[str]], valkey_url: str) -> AsyncIterator[SlowPlatform]:
    """Gateway, router and fake engine; `wide` is the model that agents use."""
    async with slow_platform(await new_postgres_url(), valkey_url) as running:
        yield running


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that share the platform run in one process, where it starts once."""
    item.add_marker(pytest.mark.nightly)
    item.add_marker(pytest.mark.xdist_group("agents"))
