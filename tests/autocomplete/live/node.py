"""Runs the editors' own clients under node.

They are npm packages, pinned with their hashes in `package-lock.json`: `npm ci --ignore-scripts` in this folder.
Without node or them the tests skip and say so, unless `TEST_NODE=required`, as in CI.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PACKAGES = HERE / "node_modules"


def require_node(packages: Path = PACKAGES) -> str:
    """Where node is; fails or skips the test when it is missing, or a client is. packages: the clients' folder."""
    node = shutil.which("node")
    installed = packages.is_dir()
    missing = "node" if node is None else None if installed else f"`npm ci --ignore-scripts` in {packages.parent}"
    if missing is None:
        assert node is not None
        return node
    if os.environ.get("TEST_NODE") == "required":
        pytest.fail(f"live clients: {missing} is missing")
    pytest.skip(f"LIVE CLIENTS NOT TESTED: {missing} is missing")
