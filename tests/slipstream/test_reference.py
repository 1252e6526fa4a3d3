"""The generated reference is what the code says, and leaves nothing undocumented."""

from __future__ import annotations

import functools
import re
import tomllib

import msgspec
import pytest

from contracts import errors
from router.config import SLOS
from router.policies import registry
from slipstream import reference
from slipstream.reference import settings_page
from tests.deployment import ROOT

MAX_SETTINGS = 200
pages = functools.cache(reference.pages)
"""Written once for all tests of the file."""


@pytest.mark.parametrize("name", ["settings.md", "metrics.md", "errors.md", "admin-api.md", "admin-roles.md"])
def test_the_committed_page_is_what_the_code_gives(name: str) -> None:
    committed = (ROOT / "docs" / "reference" / name).read_text()
    assert committed == pages()[name], "run `make docs` and commit what changes"


def test_a_default_stands_as_a_settings_file_would_have_it() -> None:
    rows = re.findall(r"^\| `([\w.\[\]]+)` \| [^|]+ \| ([^|]+) \| ", pages()["settings.md"], re.MULTILINE)
    shown = {name: default[1:-1] for name, default in rows if default.startswith("`")}
    assert len(shown) > 50
    for name, default in shown.items():
        tomllib.loads(f"it = {default}")
        assert "=<" not in default, name
    assert tomllib.loads(f"it = {shown['router.slos']}")["it"] == msgspec.to_builtins(list(SLOS))
    assert dict(rows)["local.chat_model"] == "unset"


@pytest.mark.parametrize("name", ["settings.md", "metrics.md", "errors.md"])
def test_every_row_has_a_meaning(name: str) -> None:
    rows = [line for line in pages()[name].splitlines() if line.startswith("| `")]
    assert len(rows) > 20
    assert [row for row in rows if re.search(r"\|\s*\|$", row)] == []


def test_the_policies_are_named_where_they_are_set() -> None:
    with pytest.raises(errors.ConfigError, match="known: ") as refused:
        registry.create("none of them")
    (row,) = re.findall(r"^\| `router\.policy` \| .*", pages()["settings.md"], re.MULTILINE)
    known = refused.value.message.partition("known: ")[2].split(", ")
    assert [name for name in known if f"`{name}`" not in row] == []


def test_every_error_that_is_raised_has_its_row() -> None:
    """Also one that has a kind of its own below it."""
    rows = re.findall(r"^\| `(\w+)` \|", pages()["errors.md"], re.MULTILINE)
    drawn = re.findall(r"^    [│ ]+[├└]── \w+ +(\w+)$", errors.__doc__ or "", re.MULTILINE)
    assert sorted(rows) == sorted([*drawn, "invalid_config"])


def test_processes_have_at_most_two_hundred_settings() -> None:
    """Without the fields of `[[models]]` and `[[pools]]`, which describe a fleet and are bodies of the admin API."""
    settings, _, constants = settings_page().partition("\n## Constants\n")
    assert len(re.findall(r"^\| `(?!models|pools)", settings, re.M)) <= MAX_SETTINGS
    assert "| gateway.auth.heartbeat_s | `0.25` |" in constants
