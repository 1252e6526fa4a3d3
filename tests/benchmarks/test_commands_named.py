"""Every figure in the docs names the command that makes it: the commands are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")) if path.is_file()
)
MODULES = {
    (page.relative_to(ROOT).as_posix(), module)
    for page in PAGES
    for module in re.findall(r"python -m\s+((?:benchmarks|evals|tools|training)(?:\.\w+)*)", page.read_text())
}


@pytest.mark.parametrize(("page", "module"), sorted(MODULES))
def test_a_command_that_a_page_names_is_there(page: str, module: str) -> None:
    name = f"tools.{module}" if page == "docs/log.md" and module.startswith("training") else module  # it moved later
    path = ROOT.joinpath(*name.split("."))
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), f"{page}: python -m {module}"
