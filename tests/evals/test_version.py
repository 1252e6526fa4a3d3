"""A version says what decides a score: another program, parameter or file is another version."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from evals.slices import version as versions
from evals.slices.registry import SLICES, find


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    versions.source_digest.cache_clear()


def test_every_slice_has_a_version_of_its_own() -> None:
    found = {one.version for one in SLICES}
    assert len(found) == len(SLICES)
    assert all(len(one) == 16 for one in found)


def test_a_version_is_the_same_in_every_process() -> None:
    program = "from evals.slices.registry import find; print(find('facts').version)"
    again = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert again.stdout.strip() == find("facts").version


def test_parameters_and_parts_count() -> None:
    one = find("facts")
    assert dataclasses.replace(one, parameters="longer").version != one.version
    module = "evals.slices.facts"
    assert len({versions.version(module, *parts) for parts in ((), ("",), ("ab",), ("a", "b"), (b"ab", b""))}) == 5


def test_a_changed_import_changes_whoever_imports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {one.name: one.version for one in SLICES}
    read = Path.read_bytes

    def changed(path: Path) -> bytes:
        return read(path) + (b"\n# changed\n" if path.name == "facts.py" else b"")

    monkeypatch.setattr(Path, "read_bytes", changed)
    versions.source_digest.cache_clear()
    # multi-turn asks facts between its turns.
    assert {one.name for one in SLICES if one.version != before[one.name]} == {"facts", "multi-turn"}
