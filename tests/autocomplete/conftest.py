"""A whole platform for clients of the autocomplete tier."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.autocomplete.asked import FOLDER
from tests.gateway.slow_platform import SlowPlatform, slow_platform


@pytest.fixture(scope="package")
async def platform(new_postgres_url: Callable[[], Awaitable[str]], valkey_url: str) -> AsyncIterator[SlowPlatform]:
    """Gateway, router and fake engine; `gaps` is the model of the autocomplete tier."""
    async with slow_platform(await new_postgres_url(), valkey_url, code_tokenizer=FOLDER) as running:
        yield running


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that share the platform run in one process, where it starts once."""
    if "platform" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("autocomplete"))
