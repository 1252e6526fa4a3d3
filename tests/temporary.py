"""Folders for data that a test writes and throws away."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
MIN_FREE_BYTES = 2 << 30
"""A cluster of PostgreSQL with its log takes some 100 MB; several deployments run at once."""


def short_folder(prefix: str = "slip-") -> Path:
    """A new folder, whose path is short enough for unix sockets below it: in memory where there is room, so that
    nothing waits for a disk that tests do not need. The caller removes it."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY if _has_room() else None))


def _has_room() -> bool:
    return os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MIN_FREE_BYTES
