"""Prints the modules that a program imports, as JSON: `python -m tests.imported_modules FILE` runs the file.

Each module has the list of modules whose import was under way when it was loaded, outermost first.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import json
import runpy
import sys
from typing import Any


def chains(file: str) -> dict[str, list[str]]:
    """The chain of imports of each module that the file's run loads."""
    under_way: list[str] = []
    found: dict[str, list[str]] = {}
    bootstrap: Any = importlib._bootstrap
    load = bootstrap._load_unlocked

    def loaded(spec: importlib.machinery.ModuleSpec) -> Any:
        found.setdefault(spec.name, list(under_way))
        under_way.append(spec.name)
        try:
            return load(spec)
        finally:
            under_way.pop()

    bootstrap._load_unlocked = loaded
    try:
        with contextlib.suppress(SystemExit):
            runpy.run_path(file, run_name="__main__")
    finally:
        bootstrap._load_unlocked = load
    return found


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        loaded = chains(sys.argv[1])
    json.dump(loaded, sys.stdout)
