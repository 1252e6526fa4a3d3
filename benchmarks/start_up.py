"""How much CPU time does each start take?

    python -m benchmarks.start_up [--rounds 7] [--check]

Measures the CPU seconds (user and system) of fresh interpreters that run the imports in tests/import_budgets.toml, and
compares them with `python -c "import litestar"` in the same round: the ratio depends little on the machine and on other
work. Byte code is written once, before the first round. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.bounds import add_check, tell

ROOT = Path(__file__).parents[1]


class Measure(NamedTuple):
    """One start. run: starts a process and waits for its end. bound: the limit of its CPU time, as a multiple of the
    reference's; None if it is only shown."""

    name: str
    run: Callable[[], None]
    bound: float | None = None


def python(*arguments: str) -> Callable[[], None]:
    """A function that runs a fresh interpreter with these arguments."""

    def run() -> None:
        subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    return run


def with_byte_code(folder: str) -> None:
    """Make interpreters that start from now on keep their byte code in `folder`, whatever the shell sets."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = folder


REFERENCE = Measure("import litestar", python("-c", "import litestar"))
STARTS = ROOT / "tests" / "import_budgets.toml"
BOUNDS = {"slipstream --help": 0.6, "gateway, ready": 2.7}


def measures() -> list[Measure]:
    """A measure for each start that has an import budget."""
    starts = tomllib.loads(STARTS.read_text())
    return [Measure(name, python("-c", each["run"]), BOUNDS.get(name)) for name, each in starts.items()]


def cpu_s(run: Callable[[], None]) -> float:
    """Call `run` and return the CPU seconds of the processes that it starts and waits for."""
    before = os.times()
    run()
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def main(rounds: int) -> list[str]:
    """Measure and print; returns the bounds that were missed."""
    chosen = [REFERENCE, *measures()]
    with tempfile.TemporaryDirectory() as folder:
        with_byte_code(folder)
        for measure in chosen:
            measure.run()
        taken_s = [{each.name: cpu_s(each.run) for each in chosen} for _ in range(rounds)]
    line: dict[str, float] = {}
    missed = []
    for measure in chosen:
        seconds = statistics.median(taken[measure.name] for taken in taken_s)
        ratio = statistics.median(taken[measure.name] / taken[REFERENCE.name] for taken in taken_s)
        bound = "" if measure.bound is None else f"; at most {measure.bound:g}"
        print(f"{measure.name:44} {seconds:6.3f} s, {ratio:5.2f} × {REFERENCE.name}{bound}")
        line |= {f"{measure.name}_s": round(seconds, 3), f"{measure.name}_ratio": round(ratio, 2)}
        if measure.bound is not None and ratio > measure.bound:
            missed.append(f"{measure.name}: {ratio:.2f} × {REFERENCE.name}; at most {measure.bound:g}")
    print(json.dumps({"rounds": rounds, **line}))
    return missed


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    add_check(parser)
    options = parser.parse_args()
    tell(main(options.rounds), options.check)
