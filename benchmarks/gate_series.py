"""Does the gate pass every time?

    python -m benchmarks.gate_series [--plain 5] [--workers 5] [--random 5] [--burnt 5] [--logs FOLDER] [--check]

Runs `make test` repeatedly in this tree: as it is, with four workers, in a random order, and next to two processes that
each use a core (`burnt`). The kinds take turns. Stops at the first failed run; each run's output stays in the folder.
The times are valid only on a machine without other work. Ends with one JSON line. With `--check`, the exit code is 1 if
a run failed, or if one of another kind than `burnt` took more than ten minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.bounds import add_check, tell

ROOT = Path(__file__).parents[1]
ARGUMENTS = {
    "plain": (),
    "workers": ("WORKERS=4",),
    "random": ("ARGS=-p tests.random_order",),
    "burnt": (),
}
INHERITED = frozenset({"ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "WORKERS"})
"""Variables by which an outer make would change the inner one. The run starts without them."""
BURNERS = 2
GOAL_S = 600.0
SUMMARY = re.compile(r"\d+ (?:passed|failed|error).* in [\d.]+s")


class Run(NamedTuple):
    """One run of the gate. summary: pytest's last line."""

    kind: str
    passed: bool
    wall_s: float
    summary: str


def run(kind: str, log: Path) -> Run:
    """Run the gate once and write its output to `log`."""
    began_s = time.monotonic()
    with burning(BURNERS if kind == "burnt" else 0), log.open("wb") as output:
        ended = subprocess.run(
            ["make", "test", *ARGUMENTS[kind]],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name not in INHERITED},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    wall_s = time.monotonic() - began_s
    found = SUMMARY.findall(log.read_text(errors="replace"))
    return Run(kind, ended.returncode == 0, wall_s, found[-1] if found else f"exit code {ended.returncode}")


@contextlib.contextmanager
def burning(processes: int) -> Iterator[None]:
    """Run processes that each use a core during the block."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def main(times: dict[str, int], logs: Path) -> list[str]:
    """Run and print; returns the bounds that were missed."""
    turns = itertools.zip_longest(*([kind] * number for kind, number in times.items()))
    order = [kind for turn in turns for kind in turn if kind is not None]
    runs: list[Run] = []
    for number, kind in enumerate(order, 1):
        runs.append(run(kind, logs / f"{number:02}-{kind}.log"))
        print(f"{number:2}/{len(order)} {kind:8} {runs[-1].wall_s:6.0f} s, {runs[-1].summary}", flush=True)
        if not runs[-1].passed:
            break
    slowest_s = max((each.wall_s for each in runs if each.kind != "burnt"), default=0.0)
    passed = sum(each.passed for each in runs)
    print(json.dumps({"runs": len(order), "passed": passed, "slowest_s": round(slowest_s), "cores": os.cpu_count()}))
    missed = [] if passed == len(order) else [f"run {len(runs)} failed: {logs}"]
    return missed + [f"{slowest_s:.0f} s; at most {GOAL_S:g}"] * (slowest_s > GOAL_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for kind in ARGUMENTS:
        parser.add_argument(f"--{kind}", type=int, default=5, metavar="RUNS")
    parser.add_argument("--logs", type=Path, help="folder for each run's output; default: a new temporary one")
    add_check(parser)
    options = parser.parse_args()
    folder = options.logs or Path(tempfile.mkdtemp(prefix="gate-series-"))
    folder.mkdir(parents=True, exist_ok=True)
    tell(main({kind: getattr(options, kind) for kind in ARGUMENTS}, folder), options.check)
