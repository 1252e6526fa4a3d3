"""What the billing tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.billing.dialects import Dialects, dialects


@pytest.fixture(scope="session")
async def shared_dialects() -> AsyncIterator[Dialects]:
    """One engine behind each dialect."""
    async with dialects() as running:
        yield running


@pytest.fixture
async def platform(shared_dialects: Dialects) -> Dialects:
    """The same with the engines' records and scripts as at first."""
    await shared_dialects.script()
    return shared_dialects
