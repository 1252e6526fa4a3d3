"""What mypyc gains on the router's core and the limiter's packing: CPU of a lease and of packed calls, in turn.

    python -m benchmarks.compiled [--rounds 5]

Copies this tree, compiles there what mypyc can compile (no module that defines msgspec's structs, and none that calls
`object.__new__`), and runs the same operations on both trees in turn. What cannot be compiled runs as it is in both, so
the gain is a lower bound of a whole compiled core's. Needs gcc and about five minutes of CPU. Ends with one JSON line:
the plain code's cost divided by the compiled code's, so 1.5 means 1.5 times as fast.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.needs import missing

HERE = Path(__file__).parents[1]
PACKAGES = ("benchmarks", "contracts", "engines", "gateway", "router", "speculative", "storage", "telemetry", "tests")
REPEATS = 700
BUILD = """
import sys
from setuptools import setup
from mypyc.build import mypycify
files = sys.argv.pop(1).split(",")
extensions = mypycify(["--ignore-missing-imports", *files], opt_level="2", multi_file=True)
setup(name="compiled", packages=[], ext_modules=extensions)
"""


def modules(tree: Path) -> list[str]:
    """The modules that can be compiled."""
    found = [path for path in sorted((tree / "router" / "core").glob("*.py")) if path.name != "__init__.py"]
    found.append(tree / "gateway" / "limits" / "script.py")
    texts = {path: path.read_text() for path in found}
    left = [path for path, text in texts.items() if "msgspec.Struct" not in text and "object.__new__" not in text]
    return [str(path.relative_to(tree)) for path in left]


def measured() -> dict[str, float]:
    """CPU in µs of each operation in this process' tree, the least of five times `REPEATS`."""
    from contracts.generation import Tier
    from gateway.limits.cost import Cost
    from gateway.limits.levels import Level, Levels, Limits, Rule
    from gateway.limits.plan import plan_of
    from gateway.limits.script import Calls, Script
    from tests.costs.operations import lease_events, leasing_core

    core = leasing_core()
    numbers = iter(range(1 << 40))

    def lease() -> None:
        acquire, began, release = lease_events(next(numbers))
        core.do(acquire)
        core.now += 0.05
        core.do(began)
        core.now += 0.2
        core.do(release)
        core.now += 1.0

    limits = Limits(requests_per_minute=1_000, tokens_per_minute=1_000_000)
    rules = [Rule(Level.ORGANIZATION, "organization", None, limits), Rule(Level.KEY, "key", None, limits)]
    plan = plan_of("slipstream", Levels.of("organization", rules), Tier.CHAT)
    assert plan is not None
    calls, cost = Calls(Script("epoch", 1_000, 1_000), plan), Cost(160, 16, 5)

    def packing() -> None:
        calls.fits(cost)
        calls.reserve("request-00000000", cost)
        calls.settle("request-00000000", 1, cost)

    found = {"lease": _least_us(lease), "packing": _least_us(packing)}
    compiled = str(sys.modules["router.core.dispatcher"].__file__).endswith(".so")
    return found | {"compiled": float(compiled)}


def _least_us(operation: Callable[[], None]) -> float:
    def once() -> float:
        began_s = time.thread_time()
        for _ in range(REPEATS):
            operation()
        return (time.thread_time() - began_s) / REPEATS * 1e6

    once()
    return min(once() for _ in range(5))


def in_tree(tree: Path) -> dict[str, float]:
    """`measured` by a process in that tree."""
    command = [sys.executable, "-m", "benchmarks.compiled", "--measure"]
    ran = subprocess.run(command, cwd=tree, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(ran.stdout, type=dict[str, float])


def main(rounds: int) -> None:
    """Compile, measure in turn, print."""
    if shutil.which("gcc") is None:
        missing("gcc")
    with tempfile.TemporaryDirectory(prefix="compiled-") as folder:
        tree = Path(folder) / "tree"
        for package in PACKAGES:
            shutil.copytree(HERE / package, tree / package)
        (tree / "models").symlink_to(HERE / "models")
        files = modules(tree)
        print(f"compiling {len(files)} modules …", flush=True)
        subprocess.run(
            [sys.executable, "-c", BUILD, ",".join(files), "build_ext", "--inplace"],
            cwd=tree, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        costs: list[tuple[dict[str, float], dict[str, float]]] = []
        for turn in range(rounds):
            trees = (HERE, tree) if turn % 2 else (tree, HERE)
            found = {each: in_tree(each) for each in trees}
            costs.append((found[HERE], found[tree]))
    if any(plain.pop("compiled") or not compiled.pop("compiled") for plain, compiled in costs):
        raise RuntimeError("the compiled modules were not loaded, or this tree has some")
    line: dict[str, object] = {"modules": len(files), "rounds": rounds}
    for name in costs[0][0]:
        gains = [plain[name] / compiled[name] for plain, compiled in costs]
        plain_us, compiled_us = (min(each[at][name] for each in costs) for at in (0, 1))
        gain = statistics.median(gains)
        print(f"{name:<8} {plain_us:6.1f} us, compiled {compiled_us:6.1f} us: {gain:.2f} times as fast")
        line[f"{name}_gain"] = [round(each, 2) for each in (gain, min(gains), max(gains))]
    print(msgspec.json.encode(line).decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(msgspec.json.encode(measured()).decode())
    else:
        main(options.rounds)
