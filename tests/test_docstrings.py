"""A docstring names its subject; whoever keeps another's promise needs none, for `inspect.getdoc` finds that one."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]
PACKAGES: list[str] = PROJECT["ruff"]["lint"]["isort"]["known-first-party"]
EMPTY = re.compile(r"(Nothing|None|TODO|(See|As|As promised by) (the module|`?[\w.]+`?))\.?", re.IGNORECASE)
"""Whole docstrings that say nothing of their subject, or only where something is said."""
PERHAPS = re.compile(r"[\"']\s*(Nothing|None|TODO|See|As)\b", re.IGNORECASE)
"""A file with one contains this; the others, which are most, need not be parsed."""


def empty_docstrings(source: str) -> Iterator[str]:
    """`line: docstring` of each that is `EMPTY`."""
    if PERHAPS.search(source) is None:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is not None and EMPTY.fullmatch(docstring):
                yield f"{node.body[0].lineno}: {docstring}"


def test_every_package_is_looked_at() -> None:
    assert set(PROJECT["importlinter"]["root_packages"]) <= set(PACKAGES)
    assert {folder.parent.name for folder in REPOSITORY.glob("*/__init__.py")} <= set(PACKAGES)


def test_every_docstring_names_its_subject() -> None:
    sources = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    assert len(sources) > 500
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}" for path in sources for line in empty_docstrings(path.read_text())
    ]
    assert not found, "say what it is, or delete it where a base class or protocol says it:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "docstring", ["Nothing.", "See the module.", "As `Rule`.", "See Rival.", "As promised by Counters."]
)
def test_a_docstring_without_a_subject_is_found(docstring: str) -> None:
    assert list(empty_docstrings(f'class A:\n    """{docstring}"""\n')) == [f"2: {docstring}"]


def test_a_sentence_is_left_alone() -> None:
    assert not list(empty_docstrings('def usage():\n    """Nothing differs from the journal; see `Ledger`."""\n'))
