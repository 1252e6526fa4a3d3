"""Contents of files, by their ids: in a folder, or in S3."""

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
"""A draft this old is left over from a crash: no upload takes as long, and no batch."""


class FileStore(Protocol):
    """Holds contents. A content is whole or absent; storing it again replaces it."""

    def draft(self) -> AbstractAsyncContextManager[Path]:
        """An empty local file to write a content to; it is gone afterwards unless it was stored."""
        ...

    async def put(self, file_id: str, draft: Path) -> None:
        """Store a written draft durably. Raises OSError."""
        ...

    def read(self, file_id: str) -> AsyncIterator[bytes]:
        """The content in chunks. Raises OSError; FileNotFoundError: it is absent."""
        ...

    def local(self, file_id: str) -> AbstractAsyncContextManager[Path]:
        """The content as a local file, not to be changed. Raises like `read`."""
        ...

    async def delete(self, file_id: str) -> None:
        """Delete the content, if there is one. Raises OSError."""
        ...


def new_draft(folder: Path, prefix: str) -> Path:
    """An empty file in the folder; drafts of this prefix that are left over from a crash are deleted first."""
    for old in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another upload's, which has just ended; or another account's
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
