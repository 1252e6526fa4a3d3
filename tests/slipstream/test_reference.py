"""The generated reference is what the code says, and leaves nothing undocumented."""

from __future__ import annotations

import pytest

from slipstream.reference import pages
from tests.deployment import ROOT


@pytest.mark.parametrize("name", ["settings.md", "metrics.md", "errors.md", "admin-api.md", "admin-roles.md"])
def test_the_committed_page_is_what_the_code_gives(name: str) -> None:
    committed = (ROOT / "docs" / "reference" / name).read_text()
    assert committed == pages()[name], "run `make docs` and commit what changes"


@pytest.mark.parametrize("name", ["settings.md", "metrics.md", "errors.md"])
def test_every_row_has_a_meaning(name: str) -> None:
    rows = [line for line in pages()[name].splitlines() if line.startswith("| `")]
    assert len(rows) > 20
    assert [row for row in rows if not row.rstrip(" |").rpartition("|")[2].strip()] == []
