"""How long does `slipstream up` take until it serves requests, and how much CPU does each process use?

    python -m benchmarks.up_start [--rounds 3] [--engines | --fetched] [--check]

Measures first and later starts of a deployment: without engines, with both shipped models (--engines), or with the
fetched chat model in place of the shipped one (--fetched; each first start fetches it). Compares them with
`python -c "import litestar"` in the same round. Wall seconds are valid only on an idle machine; CPU seconds by process
and their ratio are valid on a busy one too. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.bounds import add_check, tell
from benchmarks.start_up import REFERENCE, cpu_s, with_byte_code
from tests.slipstream.deployment import RestartableDeployment

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
FIRST, LATER = "first", "later"
BOUNDS = {(FIRST, False): 24.0, (LATER, False): 16.0, (LATER, True): 36.0}
"""The limit of all processes' CPU seconds, as a multiple of the reference's, by start and whether with engines."""


class Start(NamedTuple):
    """The times of one start. cpu_s: by process; PostgreSQL's processes count as one, and so do short-lived ones."""

    wall_s: float
    cpu_s: dict[str, float]


def start(place: RestartableDeployment, *, fetched: bool) -> Start:
    """Start, measure until `up` prints its last line, and stop."""
    began_s = time.monotonic()
    try:
        place.up(environment={"SLIPSTREAM_LOCAL__FETCH_CHAT_MODEL": str(fetched).lower()})
        wall_s = time.monotonic() - began_s
        assert place.process is not None
        used: defaultdict[str, float] = defaultdict(float)
        for name, seconds in used_by(place.process.pid, "up"):
            used[name] += seconds
    finally:
        place.close()
    return Start(wall_s, dict(used))


def used_by(pid: int, name: str) -> Iterator[tuple[str, float]]:
    """CPU seconds of a process and its descendants, by name; a process that has ended counts for its parent."""
    own, reaped = _cpu_s(pid)
    yield name, own
    yield ("short-lived" if name == "up" else name), reaped
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a process of PostgreSQL has just ended
            yield from used_by(int(child), _name_of(child) if name == "up" else name)


def _name_of(pid: str) -> str:
    arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return arguments[3] if arguments[1:3] == ["-m", "slipstream"] else Path(arguments[0].split()[0]).name


def _cpu_s(pid: int) -> tuple[float, float]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, reaped_user, reaped_system = (int(ticks) / TICKS_PER_S for ticks in fields[11:15])
    return user + system, reaped_user + reaped_system


def main(rounds: int, *, engines: bool, fetched: bool = False) -> list[str]:
    """Measure and print; returns the bounds that were missed."""
    with tempfile.TemporaryDirectory(prefix="slip-start-") as folder:
        with_byte_code(f"{folder}/byte-code")
        place = RestartableDeployment(Path(folder) / "d", engines=engines or fetched)
        REFERENCE.run()
        start(place, fetched=fetched)  # writes byte code, and compiles the engines' kernels
        taken: dict[str, list[Start]] = {FIRST: [], LATER: []}
        references: list[float] = []
        for _ in range(rounds):
            references.append(cpu_s(REFERENCE.run))
            shutil.rmtree(place.data)
            taken[FIRST].append(start(place, fetched=fetched))
            taken[LATER].append(start(place, fetched=fetched))
    reference_s = statistics.median(references)
    line: dict[str, object] = {
        "rounds": rounds,
        "engines": engines,
        "fetched": fetched,
        "reference_cpu_s": round(reference_s, 3),
    }
    missed = []
    for which, starts in taken.items():
        wall_s = statistics.median(each.wall_s for each in starts)
        by_process = {name: statistics.median(each.cpu_s.get(name, 0.0) for each in starts) for name in starts[0].cpu_s}
        ratio = sum(by_process.values()) / reference_s
        bound = None if fetched else BOUNDS.get((which, engines))
        print(f"{which} start: {wall_s:5.2f} s, {ratio:5.1f} × the CPU of {REFERENCE.name}")
        for name, seconds in sorted(by_process.items(), key=lambda each: -each[1]):
            print(f"    {name:14} {seconds:6.2f} s of CPU")
        line |= {f"{which}_wall_s": round(wall_s, 2), f"{which}_cpu_ratio": round(ratio, 1)}
        line[f"{which}_cpu_s"] = {name: round(seconds, 2) for name, seconds in by_process.items()}
        if bound is not None and ratio > bound:
            missed.append(f"{which} start: {ratio:.1f} × the CPU of {REFERENCE.name}; at most {bound:g}")
    print(json.dumps(line))
    return missed


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", action="store_true", help="with both shipped models")
    parser.add_argument("--fetched", action="store_true", help="with the fetched chat model")
    add_check(parser)
    options = parser.parse_args()
    tell(main(options.rounds, engines=options.engines, fetched=options.fetched), options.check)
