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

SETTINGS = frozenset(re.findall(r"^\| `([a-z_.\[\]*]+)` \|", settings_page(), re.M))
CONSTANTS = frozenset(re.findall(r"^\| ([a-z_.\[\]*]+\.[a-z_]+) \|", settings_page(), re.M))
"""Settings until 0.2. A page gives the value of one, and never its name as code."""
SECTIONS = tuple(name for name in Settings.__struct_fields__ if name not in ("models", "pools"))
NAMED = re.compile(rf"(?:`|<code[^>]*>)((?:{'|'.join(SECTIONS)})\.[a-z_]+(?:\.[a-z_]+)*)(?: = [^`<]*)?(?:`|</code>)")
SHORT = re.compile(r"`((?:[a-z_]+\.)*[a-z]+(?:_[a-z]+)+)(?: = [^`]*)?`")
"""Names with two words or more, perhaps without their sections."""
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
DECISIONS = sorted((ROOT / "docs" / "adr").glob("*.md"))
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
    """It is a setting, a section of settings, or a constant, which comments of the console may name."""
    for section, as_of in REPEATED.items():
        name = name.replace(f"{section}.", f"{as_of}.")
    return name in SETTINGS | CONSTANTS or any(known.startswith(f"{name}.") for known in SETTINGS)


def only_a_constant(name: str) -> bool:
    """A constant ends with this name, and no setting does."""
    constants, settings = (any(f".{known}".endswith(f".{name}") for known in names) for names in (CONSTANTS, SETTINGS))
    return constants and not settings


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


def test_no_page_shows_a_constant_as_a_setting() -> None:
    shown = {
        f"{page.name}: {name}"
        for page in [*PAGES, *DECISIONS]
        for name in SHORT.findall(page.read_text())
        if only_a_constant(name)
    }
    assert shown == set()


def test_a_constant_is_told_from_a_setting() -> None:
    assert CONSTANTS
    assert not CONSTANTS & SETTINGS
    assert SHORT.findall("`router.kv_reserve`, `session_idle_s = 1800`, `attempts`") == [
        "router.kv_reserve", "session_idle_s"
    ]  # fmt: skip
    assert only_a_constant("router.kv_reserve")
    assert only_a_constant("max_streams")
    assert not only_a_constant("session_idle_s")
