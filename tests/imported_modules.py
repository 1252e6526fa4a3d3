"""Prints what a process has imported at a point of its start, as JSON: `python -m tests.imported_modules FILE`, with
the statements to run in the file. For each module that is loaded, the modules whose import was under way, outermost
first.
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
    """The chain of imports for each module that running the file loads."""
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
        told = chains(sys.argv[1])
    json.dump(told, sys.stdout)
