"""Which build of a rival was measured: the versions of its packages, and what it reports about itself."""

from __future__ import annotations

import subprocess

_PROGRAM = """
import importlib.metadata, sys
print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in sys.argv[1:]))
"""


def versions(python: str, *packages: str) -> str:
    """The versions of `packages` in the environment of the interpreter `python`, or why they are not known."""
    return said(python, _PROGRAM, *packages)


def said(python: str, program: str, *arguments: str) -> str:
    """The output of a short program on one line, or why it failed."""
    done = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True)
    return " ".join((done.stdout or f"unknown: {done.stderr.strip()[-200:]}").split())
