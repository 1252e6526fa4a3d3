"""Stores the contents of files by their ids, in a folder or in S3."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from control.batches.config import S3_SCHEME, BatchesConfig

CHUNK_BYTES = 1_000_000
LEFT_OVER_S = 86_400
"""Age at which a draft must be left over from a crash: no upload and no batch takes as long."""


class FileStore(Protocol):
    """A store of contents. A content is complete or absent, and storing it again replaces it."""

    def draft(self) -> AbstractAsyncContextManager[Path]:
        """Create an empty local file for a content. The file is deleted after the block."""
        ...

    async def put(self, file_id: str, draft: Path) -> None:
        """Store a written draft durably. Raises OSError."""
        ...

    def read(self, file_id: str) -> AsyncIterator[bytes]:
        """The content in chunks. Raises OSError: FileNotFoundError if it is absent."""
        ...

    def local(self, file_id: str) -> AbstractAsyncContextManager[Path]:
        """The content as a local file, which must not be changed. Raises like `read`."""
        ...

    async def delete(self, file_id: str) -> None:
        """Delete the content, if it exists. Raises OSError."""
        ...


def new_draft(folder: Path, prefix: str) -> Path:
    """Create an empty file in the folder. Drafts with this prefix that are left over from a crash are deleted first."""
    for old in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # a draft that has just been stored, or of another account
            if time.time() - old.stat().st_mtime > LEFT_OVER_S:
                old.unlink()
    handle, name = tempfile.mkstemp(prefix=prefix, dir=folder)
    os.close(handle)
    return Path(name)


def store_of(config: BatchesConfig, data: Path) -> FileStore:
    """The store of these settings. data: the data folder. Raises ConfigError."""
    if config.storage.startswith(S3_SCHEME):
        from control.batches.s3_store import S3Store

        return S3Store.of(config)
    from control.batches.folder_store import FolderStore

    return FolderStore(Path(config.storage) if config.storage else data / "files")
