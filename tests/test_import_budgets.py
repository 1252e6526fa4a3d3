"""Each start imports only the libraries in its list, so that no process loads a library by accident.

import_budgets.toml has the lists. A failure names the chain of imports that loaded a library. Import it in the function
that uses it, or move the code that the chain needs to a separate module. If the start needs the library, add it to the
list. `python -m benchmarks.start_up` measures the cost.
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
UNCOUNTED = frozenset({"cython_runtime", "grpc_tools"})
"""Compiled modules bring the first, and grpc the second if it is installed."""


def imported(statements: str, folder: Path) -> dict[str, list[str]]:
    """The modules that these statements load in a fresh interpreter, each with its chain of imports."""
    program = folder / "statements.py"
    program.write_text(statements)
    command = [sys.executable, "-m", "tests.imported_modules", str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def libraries(chains: dict[str, list[str]]) -> dict[str, str]:
    """The libraries among these modules, each with the chain that first loaded it."""
    found: dict[str, str] = {}
    for name, chain in chains.items():
        top = name.partition(".")[0]
        known = top in sys.stdlib_module_names or top in OURS or top in UNCOUNTED or top.startswith("_")
        if not known:
            found.setdefault(top, " → ".join((*(each for each in chain if each.partition(".")[0] in OURS), name)))
    return found


@pytest.mark.parametrize("start", BUDGETS)
def test_a_start_imports_only_its_list(start: str, tmp_path: Path) -> None:
    budget = BUDGETS[start]
    chains = imported(budget["run"], tmp_path)
    found = libraries(chains)
    listed = set(budget["libraries"])
    new = {name: chain for name, chain in found.items() if name not in listed}
    assert not new, f"{start} imports libraries that {FILE.name} does not list: {new}"
    unused = listed - found.keys()
    assert not unused, f"{start} no longer imports {sorted(unused)}; remove them from {FILE.name}"
    ours = sorted(name for name in chains if name.partition(".")[0] in OURS)
    assert len(ours) <= budget["own_modules"], (
        f"{start} imports {len(ours)} modules of ours, and {FILE.name} allows {budget['own_modules']}; if it needs "
        f"them, raise the number: {ours}"
    )


def test_a_library_that_is_not_listed_is_reported_with_its_import_chain(tmp_path: Path) -> None:
    chains = imported("import control.tenants.organizations", tmp_path)
    assert libraries(chains)["sqlalchemy"].startswith("control.tenants.organizations → ")
    assert libraries(chains)["sqlalchemy"].endswith(" → sqlalchemy")
