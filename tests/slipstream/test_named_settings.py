"""Every setting that the console and the documentation name exists: a person who writes it is not refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from control.webhooks.outbox import EventType
from migrations.metadata import metadata
from slipstream.reference import REPEATED, settings_page
from slipstream.settings import Settings
from storage.roles import Permission
from tests.deployment import ROOT

SETTINGS = frozenset(re.findall(r"^\| `?([a-z_.\[\]*]+)`? \|", settings_page(), re.M))
"""Constants too: a page names one where it explains a number."""
SECTIONS = tuple(name for name in Settings.__struct_fields__ if name not in ("models", "pools"))
NAMED = re.compile(rf"(?:`|<code[^>]*>)((?:{'|'.join(SECTIONS)})\.[a-z_]+(?:\.[a-z_]+)*)(?: = [^`<]*)?(?:`|</code>)")
TABLES = frozenset(f"{table.schema}.{table.name}" for table in metadata.tables.values())
FILES = frozenset(
    "engine.metrics.token evals.key evals.table gateway.lock router.reader.token router.token worker.py".split()
)
"""Files and programs that are named like settings."""
EVENTS = frozenset(event.value for event in EventType)
ELSEWHERE = TABLES | FILES | EVENTS | frozenset(permission.value for permission in Permission)
CONSOLE = sorted(
    path for kind in ("*.ts", "*.tsx") for path in (ROOT / "console/src").rglob(kind) if path.name != "schema.d.ts"
)
PAGES = [ROOT / "README.md", *(page for part in ("guides", "concepts", "runbooks") for page in
                               sorted((ROOT / "docs" / part).glob("*.md")))]  # fmt: skip


def named(files: list[Path]) -> dict[str, str]:
    """Settings that are written as code, and a file that names each."""
    return {
        name: str(path.relative_to(ROOT))
        for path in files
        for name in NAMED.findall(path.read_text())
        if name not in ELSEWHERE
    }


def exists(name: str) -> bool:
    """It is a setting, or a section of settings."""
    for section, as_of in REPEATED.items():
        name = name.replace(f"{section}.", f"{as_of}.")
    return name in SETTINGS or any(known.startswith(f"{name}.") for known in SETTINGS)


@pytest.mark.parametrize(("files", "least"), [(CONSOLE, 5), (PAGES, 100)], ids=["console", "docs"])
def test_every_setting_that_is_named_exists(files: list[Path], least: int) -> None:
    found = named(files)
    assert len(found) >= least, "the pattern finds those that are there"
    assert {name: file for name, file in found.items() if not exists(name)} == {}


def test_a_setting_that_does_not_exist_is_found() -> None:
    assert NAMED.findall("(<code>evals.nightly</code>), `gateway.limits.when_unavailable = \"local\"`") == [
        "evals.nightly", "gateway.limits.when_unavailable"
    ]  # fmt: skip
    assert not exists("evals.nightly")
    assert exists("evals.schedule")
