"""Detects whether a file has been written or replaced, without reading it."""

from __future__ import annotations

from pathlib import Path

import msgspec


class FileStamp(msgspec.Struct, frozen=True):
    """The state of a file on disk. Equal: the file has not been written or replaced since."""

    modified_ns: int
    size_bytes: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        """The state of the file at `path` now. Raises OSError."""
        found = path.stat()
        return cls(found.st_mtime_ns, found.st_size, found.st_ino)
