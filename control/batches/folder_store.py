"""Stores contents of files in a folder. A file is written to a draft, flushed to disk and renamed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from control.batches.disk import Disk
from control.batches.store import CHUNK_BYTES, new_draft

DRAFTS = "drafts"


class FolderStore:
    """folder: created with its first file, and readable only by the deployment's account."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._disk = Disk()

    @asynccontextmanager
    async def draft(self) -> AsyncIterator[Path]:
        draft = await self._disk.do(self._new_draft)
        try:
            yield draft
        finally:
            await self._disk.do(draft.unlink, missing_ok=True)

    async def put(self, file_id: str, draft: Path) -> None:
        await self._disk.do_all(self._put, file_id, draft)

    async def read(self, file_id: str) -> AsyncIterator[bytes]:
        file: BinaryIO = await self._disk.do((self._folder / file_id).open, "rb")
        try:
            while chunk := await self._disk.do(file.read, CHUNK_BYTES):
                yield chunk
        finally:
            await self._disk.do(file.close)  # which waits for a read that hangs

    @asynccontextmanager
    async def local(self, file_id: str) -> AsyncIterator[Path]:
        yield self._folder / file_id

    async def delete(self, file_id: str) -> None:
        await self._disk.do((self._folder / file_id).unlink, missing_ok=True)

    def _new_draft(self) -> Path:
        drafts = self._folder / DRAFTS
        drafts.mkdir(mode=0o700, parents=True, exist_ok=True)
        return new_draft(drafts, "")

    def _put(self, file_id: str, draft: Path) -> None:
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(self._folder / file_id)
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
