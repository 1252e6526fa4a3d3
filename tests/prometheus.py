"""The real Prometheus and its `promtool`.

Without them the tests skip and say so, unless `TEST_PROMETHEUS=required`, as in CI.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.deployment import ROOT

RULES = sorted((ROOT / "infra" / "prometheus" / "rules").glob("*.yml"))


def program(name: str) -> Path:
    """`prometheus` or `promtool`, wherever it is. Skips the test."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get("TEST_PROMETHEUS") == "required":
            pytest.fail(f"{name} is not installed, and TEST_PROMETHEUS=required (apt-get install prometheus)")
        pytest.skip(f"NOT TESTED: rules and boards with the real {name}, not installed (apt-get install prometheus)")
    return Path(found)
