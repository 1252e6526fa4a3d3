"""Whether axe is there to look at pages; without it their tests say nothing of accessibility."""

from __future__ import annotations

import os

import pytest

from tests.console.pages import AXE


@pytest.mark.system
def test_pages_are_looked_at_by_axe() -> None:
    if not AXE.exists():
        assert os.environ.get("TEST_CHROMIUM") != "required", "TEST_CHROMIUM=required: make console installs axe"
        pytest.skip("no axe, so no page is tested for accessibility: make console")
