"""Handles the requests for files and batches that tenants send with API keys."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeVar

import asyncpg

from contracts.errors import InvalidField, RateLimited, ScopeMissing, ServiceError
from contracts.generation import Caller
from control.batches import files
from control.batches.disk import Disk
from control.batches.line import Endpoint
from control.batches.objects import FILE_ID, DeletedFile, FileObject, new_id
from control.batches.store import FileStore
from control.batches.upload import read_upload
from gateway.auth.bearer import authenticate
from gateway.auth.key_record import KeyRecord
from gateway.auth.keyring import Keyring
from gateway.auth.scopes import Scope
from storage.engine import FAILURES, Turns, borrow, close, lazy_pool

CONNECTIONS = 4
MAX_CONNECTIONS = 2
"""Connections that one organization may use at once."""
TIMEOUT_S = 10.0
MAX_UPLOADS = 8
"""Uploads of an organization that one gateway process takes at once: each may fill the disk with a whole file before
the organization's limit is checked."""
SCOPES: Mapping[Endpoint, Scope] = MappingProxyType({
    "/v1/chat/completions": Scope.CHAT,
    "/v1/completions": Scope.COMPLETIONS,
    "/v1/embeddings": Scope.EMBEDDINGS,
    "/v1/responses": Scope.CHAT,
})  # fmt: skip
"""The scope that a key needs for a batch, by the endpoint of its lines."""

ResultT = TypeVar("ResultT")
_log = logging.getLogger(__name__)


class BatchApi:
    """One per gateway process; owns a small pool of connections."""

    def __init__(self, database_url: str, keyring: Keyring, store: FileStore) -> None:
        self._database_url = database_url
        self._keyring = keyring
        self._store = store
        self._pool: asyncpg.Pool[Any] | None = None
        self._turns = Turns(MAX_CONNECTIONS)
        self._uploads: Counter[str] = Counter()
        self._disk = Disk()

    async def start(self) -> None:
        """Create the pool. The database may be unreachable."""
        self._pool = await lazy_pool(
            self._database_url, size=CONNECTIONS, connect_timeout_s=TIMEOUT_S, name="slipstream-files"
        )

    async def stop(self) -> None:
        """Close the pool. Requests in progress fail. Idempotent."""
        pool, self._pool = self._pool, None
        await close(pool, TIMEOUT_S)

    async def key(self, authorization: bytes) -> KeyRecord:
        """The caller's key. Raises AuthErrors."""
        key = await authenticate(authorization, self._keyring)
        if key.purpose is not None or key.line:
            error = ScopeMissing("This internal key cannot use files or batches. Use a project's API key.")
            error.caller = key.caller
            raise error
        if key.scopes is not None and not key.scopes & {*SCOPES.values()}:
            key.require_scope(Scope.CHAT)
        return key

    async def do(self, work: Callable[..., Awaitable[ResultT]], caller: Caller, *values: Any, **named: Any) -> ResultT:
        """Call `work` with a connection, in the turn of the caller's organization. Raises InvalidField for a NUL
        character, RateLimited if the turn does not come in time, and ServiceError while the database is unreachable."""
        try:
            if self._pool is None:
                raise ServiceError("The gateway is stopping; try again.", retry_after_s=1.0)
            async with self._turn(caller), asyncio.timeout(TIMEOUT_S), borrow(self._pool) as connection:
                return await work(connection, caller, *values, **named)
        except asyncpg.CharacterNotInRepertoireError:
            raise InvalidField("A parameter contains a NUL character. Remove the character.") from None
        except FAILURES as error:
            _log.warning("files and batches wait for the database: %r", error)
            raise ServiceError("The database cannot be reached; try again.", retry_after_s=2.0) from None

    @asynccontextmanager
    async def _turn(self, caller: Caller) -> AsyncIterator[None]:
        turn = self._turns.of(caller.organization_id)
        try:
            await asyncio.wait_for(turn.acquire(), TIMEOUT_S)
        except TimeoutError:
            raise RateLimited(
                f"Other requests of this organization for files and batches take longer than {TIMEOUT_S:g} s. Send "
                "fewer at once.",
                retry_after_s=5.0,
            ) from None
        try:
            yield
        finally:
            turn.release()

    async def upload(self, key: KeyRecord, content_type: str, body: AsyncIterator[bytes]) -> FileObject:
        """Store a file. Raises RequestErrors, and ServiceError while the store is unavailable."""
        organization_id = key.caller.organization_id
        if self._uploads[organization_id] >= MAX_UPLOADS:
            raise RateLimited(
                f"This organization is already uploading {MAX_UPLOADS} files to this gateway, which is the limit. Try "
                "again when an upload has finished.",
                retry_after_s=5.0,
            )
        self._uploads[organization_id] += 1
        try:
            return await self._upload(key, content_type, body)
        finally:
            self._uploads[organization_id] -= 1
            if not self._uploads[organization_id]:
                del self._uploads[organization_id]

    async def _upload(self, key: KeyRecord, content_type: str, body: AsyncIterator[bytes]) -> FileObject:
        await self.do(files.require_room, key.caller, 1)
        file_id = new_id(FILE_ID)
        try:
            async with self._store.draft() as draft:
                upload = await read_upload(content_type, body, draft, self._disk)
                attributes = "batch", upload.filename, upload.size_bytes, upload.kept_s
                await self.do(files.begin, key.caller, file_id, *attributes)
                try:
                    await self._store.put(file_id, draft)
                except OSError:
                    # else its size counts for a day, at each retry
                    await self.do(files.abandon, key.caller, file_id)
                    await self._delete(key.caller, file_id)
                    raise
                return await self.do(files.finish, key.caller, file_id)
        except OSError as error:
            raise _store_away(error) from None

    async def content(self, key: KeyRecord, file_id: str) -> tuple[FileObject, AsyncIterator[bytes]]:
        """A file and its content. Raises NotFound."""
        file = await self.do(files.find, key.caller, file_id)
        chunks = self._store.read(file_id)
        try:
            first = await anext(chunks, b"")
        except OSError as error:
            raise _store_away(error) from None
        return file, _followed(first, chunks)

    async def delete(self, key: KeyRecord, file_id: str) -> DeletedFile:
        """Delete a file. Raises NotFound and Conflict."""
        await self.do(files.remove, key.caller, file_id)
        await self._delete(key.caller, file_id)
        return DeletedFile(id=file_id)

    async def _delete(self, owner: Caller, file_id: str) -> None:
        """Delete the content of a file that no caller can find, and then its row."""
        try:
            await self._store.delete(file_id)
        except OSError as error:
            _log.warning("files: %s is deleted, and its content stays until the next sweep: %r", file_id, error)
        else:
            await self.do(lambda connection, _caller: files.forget(connection, file_id), owner)

    def require_endpoint(self, key: KeyRecord, endpoint: Endpoint) -> None:
        """Raises ScopeMissing unless the key may send the requests of its batch."""
        key.require_scope(SCOPES[endpoint])


async def _followed(first: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async with aclosing(chunks):  # type: ignore[type-var]
        yield first
        async for chunk in chunks:
            yield chunk


def _store_away(error: OSError) -> ServiceError:
    _log.error("the store of files cannot be used: %r", error)
    return ServiceError("Files cannot be stored or read right now; try again.", retry_after_s=5.0)
