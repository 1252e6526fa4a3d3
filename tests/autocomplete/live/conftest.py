"""Tests of clients that run under Node."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """The gate has no Node. The platform is the one of the folder above, for as long as these tests run."""
    item.add_marker(pytest.mark.system)
