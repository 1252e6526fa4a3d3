"""The few file operations the journal makes, in one place, so that tests can put a failing disk under it."""

from __future__ import annotations

import os
from pathlib import Path


class Disk:
    """The real one. Everything raises OSError."""

    def create(self, path: Path) -> int:
        """A new file, opened for appending; FileExistsError when it is there already."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)

    def write(self, descriptor: int, data: bytes) -> int:
        """Append; returns how many bytes went in, which a full disk makes fewer than asked."""
        return os.write(descriptor, data)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        """Cut an open file."""
        os.ftruncate(descriptor, size_bytes)

    def sync(self, descriptor: int) -> None:
        """Return when the file's bytes are on stable storage."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)

    def sync_folder(self, path: Path) -> None:
        """Return when the names in the folder are on stable storage."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, descriptor: int) -> None:
        """Give the descriptor back."""
        os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Delete a file; no error if it is missing."""
        path.unlink(missing_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Rename atomically; `new` is replaced."""
        old.replace(new)
