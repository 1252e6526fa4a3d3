"""A whole platform that several test files share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.gateway.slow_platform import SlowPlatform, slow_platform


@pytest.fixture(scope="session")
async def platform(postgres_url: str, valkey_url: str) -> AsyncIterator[SlowPlatform]:
    """Gateway, router and fake engine behind links; between tests all parts are up and at full speed."""
    async with slow_platform(postgres_url, valkey_url) as running:
        yield running
