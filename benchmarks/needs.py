"""What a benchmark needs and a machine may lack: it says so in a line, before it starts anything."""

from __future__ import annotations

import shutil
import sys
from typing import NoReturn

SYSTEM_FOLDERS = "/usr/sbin:/usr/local/sbin:/opt/homebrew/bin"
"""Where servers are installed, beside those of PATH."""


def missing(what: str) -> NoReturn:
    """Ends with 2, as after a wrong option. what: the thing and how to get it."""
    print(f"missing: {what}", file=sys.stderr)
    sys.exit(2)


def program(name: str) -> str:
    """The path of a program that a system's package of the same name installs."""
    found = shutil.which(name) or shutil.which(name, path=SYSTEM_FOLDERS)
    return found or missing(f"{name} (apt-get install {name})")
