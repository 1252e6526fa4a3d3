"""Finds the agents of `package.json`, pinned with their hashes in `package-lock.json`: `npm ci` in this folder.

Without them the tests skip and say so, unless `TEST_NODE=required`, as in CI.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def require_agent(name: str) -> str:
    """Path of the agent's command; fails or skips the test when it is missing."""
    command = HERE / "node_modules" / ".bin" / name
    if command.exists():
        return str(command)
    if os.environ.get("TEST_NODE") == "required":
        pytest.fail(f"agents: `npm ci` in {HERE} is missing")
    pytest.skip(f"AGENT NOT TESTED: `npm ci` in {HERE} is missing")
