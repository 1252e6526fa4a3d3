"""Which build of a rival was measured: the versions of its packages, and what it says of itself."""

from __future__ import annotations

import subprocess

_PROGRAM = """
import importlib.metadata, sys
print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in sys.argv[1:]))
"""


def versions(python: str, *packages: str) -> str:
    """Of packages in the environment of this interpreter; what went wrong where there is none."""
    return said(python, _PROGRAM, *packages)


def said(python: str, program: str, *arguments: str) -> str:
    """What a short program prints in one line, or why it could not."""
    done = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True)
    return " ".join((done.stdout or f"unknown: {done.stderr.strip()[-200:]}").split())
