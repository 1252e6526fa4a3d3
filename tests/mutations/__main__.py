"""Prove that the gate catches faults: apply each mutation of `mutations.toml` to a copy of the tree and run its tests.

    python -m tests.mutations                    all of them
    python -m tests.mutations NAME [NAME ...]    some

Only the gate's tests count, so the copy runs them with the markers of `make test`. Ends with one JSON line; the exit
code is 1 when a mutation survives.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutations.mutation import ROOT, Mutation, read_mutations

FAILED = 1
"""pytest's exit code for failed tests; the others are errors of its own, which prove nothing."""


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
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = _copied(Path(folder) / "tree")
        for number, mutation in enumerate(chosen, 1):
            began_s = time.monotonic()
            code, output = _mutated_run(copy, mutation)
            caught = code == FAILED
            verdict = "caught" if caught else f"SURVIVED (pytest exit code {code})"
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
    """The tracked and the new files of the tree, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)
    return target


def _mutated_run(copy: Path, mutation: Mutation) -> tuple[int, str]:
    """pytest's exit code and output with the mutation in place; the file is restored afterwards."""
    place = copy / mutation.file
    original = place.read_text()
    place.write_text(mutation.applied_to(original))
    try:
        done = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutation.tests],
            cwd=copy, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr
    finally:
        place.write_text(original)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
