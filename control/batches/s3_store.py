"""Contents of files in an S3 bucket."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from contracts.errors import ConfigError
from control.batches.config import S3_SCHEME, BatchesConfig
from control.batches.store import CHUNK_BYTES, new_draft

PREFIX = "slipstream-file-"
"""Prefix of drafts in the folder for temporary files."""


class S3Store:
    """bucket: obstore's store. Use `of` to create it."""

    def __init__(self, bucket: Any) -> None:
        self._bucket = bucket

    @classmethod
    def of(cls, config: BatchesConfig) -> S3Store:
        """Create the store. Raises ConfigError if the library is missing or refuses the settings."""
        try:
            from obstore.exceptions import BaseError
            from obstore.store import S3Store as Bucket
        except ImportError:
            raise ConfigError(
                "batches.storage: files in S3 need a library: pip install 'slipstream[s3]'", param="batches.storage"
            ) from None
        name, _, prefix = config.storage.removeprefix(S3_SCHEME).partition("/")
        endpoint: dict[str, Any] = {"endpoint": config.s3_endpoint} if config.s3_endpoint else {}
        plain = config.s3_endpoint.startswith("http://")
        try:
            return cls(Bucket(name, prefix=prefix or None, client_options={"allow_http": plain}, **endpoint))
        except BaseError as error:
            raise ConfigError(f"batches.storage: {config.storage}: {error}", param="batches.storage") from None

    @asynccontextmanager
    async def draft(self) -> AsyncIterator[Path]:
        draft = await asyncio.to_thread(new_draft, Path(tempfile.gettempdir()), PREFIX)
        try:
            yield draft
        finally:
            await asyncio.to_thread(draft.unlink, missing_ok=True)

    async def put(self, file_id: str, draft: Path) -> None:
        import obstore

        try:
            await obstore.put_async(self._bucket, file_id, draft)
        except obstore.exceptions.BaseError as error:
            raise OSError(f"the S3 server refused to store {file_id}: {error}") from error

    async def read(self, file_id: str) -> AsyncIterator[bytes]:
        import obstore

        try:
            found = await obstore.get_async(self._bucket, file_id)
            async for chunk in found.stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(chunk)
        except FileNotFoundError as error:  # obstore raises the built-in error
            if "NoSuchBucket" in str(error):
                raise OSError(f"the S3 bucket of {file_id} does not exist") from error
            raise
        except obstore.exceptions.BaseError as error:
            raise OSError(f"the S3 server did not send {file_id}: {error}") from error

    @asynccontextmanager
    async def local(self, file_id: str) -> AsyncIterator[Path]:
        # a copy, because a batch reads it for longer than a connection lasts
        async with self.draft() as copy:
            with await asyncio.to_thread(copy.open, "wb") as file:
                async for chunk in self.read(file_id):
                    await asyncio.to_thread(file.write, chunk)
            yield copy

    async def delete(self, file_id: str) -> None:
        import obstore

        try:
            await obstore.delete_async(self._bucket, file_id)
        except FileNotFoundError:
            return
        except obstore.exceptions.BaseError as error:
            raise OSError(f"the S3 server did not delete {file_id}: {error}") from error
