"""The real Prometheus and its `promtool`.

Without them the tests skip and say so, unless `TEST_PROMETHEUS=required`, as in CI.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def rules_in(file: Path) -> list[dict[str, Any]]:
    """All rules of a file."""
    return [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def metrics_in(expression: str) -> set[str]:
    """Names of the metrics and recorded series that an expression reads."""
    names = set(
        re.findall(r"(?<![\w:])(?:\w+:)?(?:slipstream|sglang:)[\w:]*", re.sub(r'job=~?"[^"]*"', "", expression))
    )
    return {re.sub(r"_(bucket|sum|count)$", "", name) if ":slip" not in name else name for name in names}


def promtool(*arguments: str) -> None:
    """Run it. Fails the test when it does."""
    ended = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
