"""Bounds in annotations are written alike: `ge=0`, not `ge=0.0`.

`typing` keeps one object for two equal annotations, and 0 equals 0.0: the document of an API would have the bound of
whichever module was imported first.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("contracts", "control", "engines", "evals", "gateway", "infra", "router", "slipstream", "storage",
           "telemetry", "tools")  # fmt: skip
WHOLE = re.compile(r"\b(?:ge|gt|le|lt)=-?\d+\.0\b")


def test_a_whole_bound_has_no_fraction() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {bound}"
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
        for bound in WHOLE.findall(file.read_text())
    ]
    assert found == []
