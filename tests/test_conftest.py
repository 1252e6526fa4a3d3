"""Tests of one group run in one of xdist's processes, for which module and session fixtures start once."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

pytestmark = pytest.mark.xdist_group("tests of groups")


@pytest.mark.parametrize("parameter", ["plain", "with @ in it"])
def test_xdists_scheduler_finds_the_group_in_the_name(request: pytest.FixtureRequest, parameter: str) -> None:
    """As `make test` runs, by its option."""
    scheduler = LoadGroupScheduling.__new__(LoadGroupScheduling)
    grouped = getattr(request.config.option, "loadgroup", False)
    found = scheduler._split_scope(request.node.nodeid)
    assert found == ("tests of groups" if grouped else request.node.nodeid)
