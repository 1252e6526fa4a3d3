"""Prove that the gate catches faults: apply each mutation of `mutations.toml` to a copy of the tree and run its tests.

    python -m tests.mutations                    all of them
    python -m tests.mutations NAME [NAME ...]    some

The copy runs each mutation's tests with the markers and examples of `make test`, because only the gate counts: without
the mutation they must pass, and with it one must fail. The last line is JSON. The exit code is 1 if a mutation
survives, and 2 if the tests fail without it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutations.mutation import ROOT, Mutation, read_mutations

FAILED = re.compile(r"^(?:FAILED |=+ .*\b\d+ failed\b|\d+ failed\b)", re.MULTILINE)
"""pytest's output when a test failed. An error of a fixture or of the collection proves nothing."""


def main(names: Sequence[str]) -> int:
    """Exit code."""
    if {"-h", "--help"} & set(names):
        print(__doc__)
        return 0
    chosen = [mutation for mutation in read_mutations() if not names or mutation.name in names]
    missing = set(names) - {mutation.name for mutation in chosen}
    if missing:
        print(f"no such mutation: {', '.join(sorted(missing))}", file=sys.stderr)
        return 2
    survivors = []
    sound: set[Sequence[str]] = set()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = _copied(Path(folder) / "tree")
        for number, mutation in enumerate(chosen, 1):
            began_s = time.monotonic()
            if mutation.tests not in sound:
                if output := _failures_of(copy, mutation.tests):
                    print(f"{mutation.name}: its tests fail without it\n{output[-3_000:]}", file=sys.stderr)
                    return 2
                sound.add(mutation.tests)
            output = _mutated_run(copy, mutation)
            caught = FAILED.search(output) is not None
            verdict = "caught" if caught else "SURVIVED"
            print(
                f"{number:3}/{len(chosen)} {mutation.name:<34} {verdict:<10} {time.monotonic() - began_s:6.1f} s",
                flush=True,
            )
            if not caught:
                survivors.append(mutation.name)
                print(output[-3_000:], flush=True)
    print(json.dumps({"mutations": len(chosen), "caught": len(chosen) - len(survivors), "survivors": survivors}))
    return 1 if survivors else 0


def _copied(target: Path) -> Path:
    """A copy of the tree's tracked and new files."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, path)
    return target


def _mutated_run(copy: Path, mutation: Mutation) -> str:
    """pytest's output with the mutation; empty if all passed. The file is restored afterwards."""
    path = copy / mutation.file
    original = path.read_text()
    path.write_text(mutation.applied_to(original))
    try:
        return _failures_of(copy, mutation.tests)
    finally:
        path.write_text(original)


def _failures_of(copy: Path, tests: Sequence[str]) -> str:
    """pytest's output; empty if all passed."""
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
        # `make nightly` draws many new examples, but the gate does not
        cwd=copy, env=os.environ | {"HYPOTHESIS_PROFILE": "gate"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return (done.stdout + done.stderr) if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
