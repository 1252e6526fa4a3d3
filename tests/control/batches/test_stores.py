"""Both stores of files do the same: a folder, and S3 (a real server over HTTP)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from contracts.errors import ConfigError
from control.batches.config import BatchesConfig
from control.batches.folder_store import DRAFTS, FolderStore
from control.batches.s3_store import PREFIX, S3Store
from control.batches.store import CHUNK_BYTES, FileStore, store_of
from tests.deployment import free_port
from tests.processes import answers, module_process

CONTENT = bytes(range(256)) * (CHUNK_BYTES // 100)
"""More than two chunks."""


async def whole(store: FileStore, file_id: str) -> bytes:
    return b"".join([chunk async for chunk in store.read(file_id)])


async def put(store: FileStore, file_id: str, content: bytes) -> Path:
    async with store.draft() as draft:
        draft.write_bytes(content)
        await store.put(file_id, draft)
    return draft


async def check(store: FileStore) -> None:
    """Contents are whole or absent, replaced by a repetition, and leave no draft."""
    for content in (b"first", CONTENT):
        draft = await put(store, "file-1", content)
        assert not draft.exists()
        assert await whole(store, "file-1") == content
    async with store.local("file-1") as path:
        assert path.read_bytes() == CONTENT
    await put(store, "file-2", b"second")
    for _ in range(2):
        await store.delete("file-1")
    with pytest.raises(FileNotFoundError):
        await whole(store, "file-1")
    with pytest.raises(FileNotFoundError):
        async with store.local("file-1") as path:
            path.read_bytes()
    assert await whole(store, "file-2") == b"second"
    async with store.draft() as draft:
        draft.write_bytes(b"half")
    assert not draft.exists()


async def test_a_folder(tmp_path: Path) -> None:
    await check(store_of(BatchesConfig(), tmp_path / "data"))
    assert (tmp_path / "data" / "files" / "file-2").is_file()
    await check(store_of(BatchesConfig(storage=str(tmp_path / "shared")), tmp_path))


async def test_drafts_of_a_crash_are_deleted_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for store, name in ((FolderStore(tmp_path), f"{DRAFTS}/left"), (S3Store(None), f"{PREFIX}left")):
        left, young, other = tmp_path / name, tmp_path / f"{name}-young", tmp_path / "another"
        for each in (left, young, other):
            each.parent.mkdir(exist_ok=True)
            each.write_bytes(b"x")
        for each in (left, other):
            os.utime(each, (0, 0))
        async with store.draft() as draft:
            assert draft.read_bytes() == b""
        assert [each.exists() for each in (left, young, other)] == [False, True, True]


async def test_a_draft_that_ends_meanwhile_does_not_fail_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing of the drafts and a look at one, its upload may end."""
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([self / "gone"]))
    async with FolderStore(tmp_path).draft() as draft:
        assert draft.exists()


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "s", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    async with (
        module_process("moto.server", "-p", str(port), "-H", "127.0.0.1", environment=dict(os.environ)) as process,
        aiohttp.ClientSession() as session,
    ):
        await answers(session, f"{url}/moto-api/data.json", process)
        async with session.put(f"{url}/bucket") as response:
            assert response.status == 200
        yield url


@pytest.mark.system
async def test_s3(server: str, tmp_path: Path) -> None:
    await check(store_of(BatchesConfig(storage="s3://bucket/some/prefix", s3_endpoint=server), tmp_path))
    lost = store_of(BatchesConfig(storage="s3://none", s3_endpoint=server), tmp_path)
    with pytest.raises(OSError, match="NoSuchBucket"):
        await put(lost, "file-1", b"x")
    with pytest.raises(OSError, match="does not exist") as caught:
        await whole(lost, "file-1")
    assert not isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"storage": "relative"}, "batches.storage"),
        ({"storage": "s3://"}, "batches.storage"),
        ({"s3_endpoint": "http://x"}, "batches.s3_endpoint"),
    ],
)
def test_places_that_cannot_be_one(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        BatchesConfig(**given).check()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("obstore", "obstore.exceptions", "obstore.store"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"pip install 'slipstream\[s3\]'"):
        store_of(BatchesConfig(storage="s3://bucket"), tmp_path)
