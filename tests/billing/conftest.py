"""What the billing tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.billing.dialects import Dialects, dialects


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests on every dialect share a deployment of their own. The gate has the trial's."""
    if "shared_dialects" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.system)
        item.add_marker(pytest.mark.xdist_group("dialects"))


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
