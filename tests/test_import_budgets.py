"""Each start imports the libraries that its list names: no process loads one that it does not need by accident.

The lists are in import_budgets.toml. A test that fails names the chain of imports by which a library came. Let the
module that uses it import it where it is used, or move what the chain wanted to a module of its own; a start that does
need it gets a line in the list. `python -m benchmarks.start_up` measures what that costs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parent / "import_budgets.toml"
BUDGETS: dict[str, Any] = tomllib.loads(FILE.read_text())
ROOT = Path(__file__).parents[1]
OURS = frozenset(path.parent.name for path in ROOT.glob("*/__init__.py")) | {"migrations"}
UNCOUNTED = frozenset({"cython_runtime", "grpc_tools", "runpy", "tests"})
"""Not a process's own: a compiler's, a tool's that grpc takes along where it is installed, and the test's."""


def imported(statements: str, folder: Path) -> dict[str, list[str]]:
    """The modules that these statements load in a fresh interpreter, each with its chain."""
    program = folder / "statements.py"
    program.write_text(statements)
    command = [sys.executable, "-m", "tests.imported_modules", str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def libraries(chains: dict[str, list[str]]) -> dict[str, str]:
    """The libraries among them, each with the chain that brought it first."""
    found: dict[str, str] = {}
    for name, chain in chains.items():
        top = name.partition(".")[0]
        known = top in sys.stdlib_module_names or top in OURS or top in UNCOUNTED or top.startswith("_")
        if not known:
            found.setdefault(top, " → ".join((*(each for each in chain if each.partition(".")[0] in OURS), name)))
    return found


@pytest.mark.parametrize("start", BUDGETS)
def test_a_start_imports_what_its_list_names(start: str, tmp_path: Path) -> None:
    budget = BUDGETS[start]
    chains = imported(budget["run"], tmp_path)
    found = libraries(chains)
    listed = set(budget["libraries"])
    new = {name: chain for name, chain in found.items() if name not in listed}
    assert not new, f"{start} imports what {FILE.name} does not name: {new}"
    assert not listed - found.keys(), f"{start} imports these no more; take them from {FILE.name}"
    ours = sorted(name for name in chains if name.partition(".")[0] in OURS)
    assert len(ours) <= budget["own_modules"], (
        f"{start} imports {len(ours)} modules of ours, and {FILE.name} allows {budget['own_modules']}; where it needs "
        f"them, raise the number: {ours}"
    )


def test_a_library_that_is_not_listed_is_reported_with_its_import_chain(tmp_path: Path) -> None:
    chains = imported("import control.tenants.organizations", tmp_path)
    assert libraries(chains)["sqlalchemy"].startswith("control.tenants.organizations → ")
    assert libraries(chains)["sqlalchemy"].endswith(" → sqlalchemy")
