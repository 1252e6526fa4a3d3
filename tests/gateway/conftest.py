"""A whole platform that several test files share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.deployment import ROOT
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
