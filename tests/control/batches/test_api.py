"""Requests for files and batches that one tenant repeats, and bodies that the database would refuse."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pytest

from contracts.errors import InvalidField, RateLimited
from contracts.generation import Caller
from control.batches import api, asking, batches, disk, files
from control.batches.api import BatchApi
from control.batches.folder_store import FolderStore
from control.batches.line import Line
from control.deferred.gateway_client import GatewayUnreachable, TokenRefused
from gateway.auth.key_record import KeyRecord
from gateway.limits.levels import Levels
from tests.waiting import eventually


def key_of(organization_id: str) -> KeyRecord:
    return KeyRecord(Caller(organization_id, "p", "k"), Levels.of(organization_id, ()))


async def test_uploads_of_an_organization_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes disk space before its organization's room is looked at."""
    batch_api: Any = BatchApi("", None, FolderStore(tmp_path))  # type: ignore[arg-type]

    async def do(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(batch_api, "do", do)

    waiting = 0

    async def stalled() -> AsyncIterator[bytes]:
        nonlocal waiting
        waiting += 1
        await asyncio.Event().wait()
        yield b""

    def upload(organization_id: str) -> Any:
        return batch_api.upload(key_of(organization_id), "multipart/form-data; boundary=x", stalled())

    held = [asyncio.create_task(upload("o")) for _ in range(api.MAX_UPLOADS)]
    await eventually(lambda: waiting == api.MAX_UPLOADS)
    with pytest.raises(RateLimited):
        await upload("o")
    other = asyncio.create_task(upload("other"))
    await eventually(lambda: waiting == api.MAX_UPLOADS + 1)
    assert not any(each.done() for each in (*held, other))
    for each in (*held, other):
        each.cancel()
    await asyncio.gather(*held, other, return_exceptions=True)
    assert not batch_api._uploads


async def test_an_organization_never_takes_all_connections(tmp_path: Path, module_postgres_url: str) -> None:
    """Fault: one that created batches held up another's list by seconds."""
    batch_api: Any = BatchApi(module_postgres_url, None, FolderStore(tmp_path))  # type: ignore[arg-type]
    await batch_api.start()
    held, release = 0, asyncio.Event()

    async def hold(*_: Any) -> None:
        nonlocal held
        held += 1
        await release.wait()

    async def other(*_: Any) -> str:
        return "served"

    tasks = [asyncio.create_task(batch_api.do(hold, key_of("o").caller)) for _ in range(10)]
    await eventually(lambda: held == api.MAX_CONNECTIONS)
    assert await batch_api.do(other, key_of("other").caller) == "served"
    assert held == api.MAX_CONNECTIONS
    release.set()
    await asyncio.gather(*tasks)
    await batch_api.stop()


async def test_text_that_no_database_takes_is_the_clients_error(tmp_path: Path, module_postgres_url: str) -> None:
    batch_api: Any = BatchApi(module_postgres_url, None, FolderStore(tmp_path))  # type: ignore[arg-type]
    await batch_api.start()
    caller = Caller(str(UUID(int=1)), str(UUID(int=2)), str(UUID(int=3)))
    with pytest.raises(InvalidField, match="NUL"):
        await batch_api.do(files.listed, caller, "\0", None, 1, ascending=True)
    await batch_api.stop()


class HangingFile:
    """Its reads end with `again`, and its closing, like a real file's, waits for them."""

    def __init__(self, again: threading.Event) -> None:
        self._again = again

    def __truediv__(self, _name: str) -> HangingFile:
        return self

    def open(self, _mode: str) -> HangingFile:
        return self

    def read(self, _size_bytes: int) -> bytes:
        self._again.wait()
        return b""

    def close(self) -> None:
        self._again.wait()


async def test_a_disk_that_hangs_leaves_the_loop_and_the_shared_threads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: downloads from a folder that hung took all threads, and no usage reached the ledger."""
    monkeypatch.setattr(disk, "TIMEOUT_S", 0.05)
    again = threading.Event()
    store = FolderStore(HangingFile(again))  # type: ignore[arg-type]

    async def read() -> None:
        async for _ in store.read("file-1"):
            pass

    ends = await asyncio.gather(*(read() for _ in range(3 * disk.THREADS)), return_exceptions=True)
    assert {type(end) for end in ends} == {OSError}
    assert await asyncio.to_thread(lambda: "free") == "free"
    again.set()


@pytest.mark.parametrize("metadata", [{"a": "\0"}, {"\0": "a"}])
def test_metadata_that_cannot_be_stored_is_the_clients_error(metadata: dict[str, str]) -> None:
    """PostgreSQL refuses it, which was reported as a database out of reach, to be tried again."""
    batches.require_storable({"a": "\\u0000"})
    with pytest.raises(InvalidField, match="NUL"):
        batches.require_storable(metadata)


@pytest.mark.parametrize(
    ("body", "raised"),
    [
        (b'{"error": {"code": "invalid_api_key", "message": "m"}}', TokenRefused),
        (b'{"detail": "Unauthorized"}', GatewayUnreachable),
        (b'"no"', GatewayUnreachable),
        (b'{"error": "no"}', GatewayUnreachable),
    ],
)
async def test_another_servers_401_is_tried_again(body: bytes, raised: type[Exception]) -> None:
    """It ended all lines in flight, whose runs were then lost."""

    class Response:
        status, headers = 401, MappingProxyType[str, str]({})

        async def __aenter__(self) -> Response:
            return self

        async def __aexit__(self, *_: object) -> None:
            return None

        async def read(self) -> bytes:
            return body

    class Session:
        def post(self, *_: Any, **__: Any) -> Response:
            return Response()

    session: Any = Session()
    with pytest.raises(raised):
        await asking.ask(session, "", "", 1, Line("a", "POST", "/v1/completions", msgspec.Raw(b"{}")))
