"""Runs pip for `make`. It prints one line per step instead of pip's hundreds, and writes the whole output to a file.

`python -m infra.installation LOG [--versions-of LOCK] ARGUMENT...`. With a lock file, pip installs the versions in it.
It uses the standard library alone, because nothing else is installed yet.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "--no-compile")
LARGE = re.compile(
    r"Downloading (?:\S*/)?(?P<name>[\w.]+)-(?P<version>[\w.+%]+?)-\S+ \((?P<size>\d+(?:\.\d+)? [MG]B)\)"
)
MIN_MB = 20.0
LAST_LINES = 20
VERSIONS_OF = "--versions-of"
BUILD = re.compile(r"\+\w+")
"""The build in a version: an index has a different build of PyTorch from the lock's."""


def steps(lines: Iterable[str]) -> Iterator[str]:
    """One line for each step that pip reports."""
    resolving = False
    for line in lines:
        text = line.strip()
        if text.startswith("Collecting ") and not resolving:
            resolving = True
            yield "looking up packages"
        elif (large := LARGE.match(text)) and _megabytes(large["size"]) >= MIN_MB:
            yield f"downloading {large['name']} {large['version']} ({large['size']})"
        elif text.startswith("Installing collected packages: "):
            yield f"installing {text.count(',') + 1} packages"


def constraints(lock: Iterable[str]) -> Iterator[str]:
    """A lock's versions as pip's constraints, without hashes: an editable package has none."""
    for line in lock:
        if line[:1].isalnum():
            yield BUILD.sub("", line.rstrip("\\ \n"), count=1)


def _megabytes(size: str) -> float:
    number, unit = size.split()
    return float(number) * (1_000 if unit == "GB" else 1)


def main(log: Path, arguments: list[str]) -> int:
    """Run pip and return its exit code; after a failure, print the end of its output."""
    last: list[str] = []

    def logged(output: Iterable[str], file: TextIO) -> Iterator[str]:
        for line in output:
            file.write(line)
            file.flush()
            last.append(line)
            del last[:-LAST_LINES]
            yield line

    pip = subprocess.Popen(
        (sys.executable, *PIP, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with log.open("w", encoding="utf-8") as file, pip as running:
        assert running.stdout is not None
        for step in steps(logged(running.stdout, file)):
            print(f"  {step}", flush=True)
        code = running.wait()
    if code:
        print("".join(last), end="", file=sys.stderr)
        print(f"pip failed; its whole output is in {log}", file=sys.stderr)
    return code


def arguments_of(command_line: list[str], folder: Path) -> list[str]:
    """pip's arguments. Writes the constraints into the folder."""
    if command_line[:1] != [VERSIONS_OF]:
        return command_line
    file = folder / "constraints.txt"
    file.write_text("".join(f"{line}\n" for line in constraints(Path(command_line[1]).read_text().splitlines())))
    return ["--constraint", str(file), *command_line[2:]]


if __name__ == "__main__":
    log = Path(sys.argv[1])
    sys.exit(main(log, arguments_of(sys.argv[2:], log.parent)))
