"""Detects whether a file has been written or replaced, without reading it."""

from __future__ import annotations

from pathlib import Path

import msgspec


class FileStamp(msgspec.Struct, frozen=True):
    """The state of a file on disk. If two stamps are equal, the file was neither written nor replaced in between."""

    modified_ns: int
    size_bytes: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        """The state of the file at `path` now. Raises OSError."""
        status = path.stat()
        return cls(status.st_mtime_ns, status.st_size, status.st_ino)
