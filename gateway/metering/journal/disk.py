"""Collects the journal's few file operations, so that tests can replace the disk by a failing one."""

from __future__ import annotations

import os
from pathlib import Path


class Disk:
    """The real disk. Every method raises OSError."""

    def create(self, path: Path) -> int:
        """Create a file and open it for appending. Raises FileExistsError if it exists."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)

    def write(self, descriptor: int, data: bytes) -> int:
        """Append data. Returns the number of bytes written, which is too small on a full disk."""
        return os.write(descriptor, data)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        """Truncate an open file."""
        os.ftruncate(descriptor, size_bytes)

    def sync(self, descriptor: int) -> None:
        """Return once the file's bytes are on stable storage."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)

    def sync_folder(self, path: Path) -> None:
        """Return once the names in the folder are on stable storage."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, descriptor: int) -> None:
        """Close the descriptor."""
        os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Delete a file; no error if it is missing."""
        path.unlink(missing_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Rename atomically, and replace `new`."""
        old.replace(new)
