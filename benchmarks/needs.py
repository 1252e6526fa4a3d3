"""Reports in one line what a benchmark needs and this machine lacks, before the benchmark starts."""

from __future__ import annotations

import os
import shutil
import sys
from typing import NoReturn

SYSTEM_FOLDERS = "/usr/sbin:/usr/local/sbin:/opt/homebrew/bin"
"""Folders of servers in addition to PATH."""


def missing(what: str) -> NoReturn:
    """Exit with code 2, as after a wrong option. what: the missing thing and how to get it."""
    print(f"missing: {what}", file=sys.stderr)
    sys.exit(2)


def two_cores() -> list[int]:
    """The numbers of two cores, one for servers and one for their load."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    return cores if len(cores) == 2 else missing("a second core for the load")


def program(name: str) -> str:
    """The path of a program from a system package of the same name."""
    found = shutil.which(name) or shutil.which(name, path=SYSTEM_FOLDERS)
    return found or missing(f"{name} (apt-get install {name})")
