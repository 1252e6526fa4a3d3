"""`short_folder`: in memory where there is room, and short enough for the longest socket of a data folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from infra.local.folders import DataFolder
from tests import temporary
from tests.temporary import MEMORY, short_folder

SOCKET_PATH_BYTES = 107
"""The longest that Linux takes."""


def made(monkeypatch: pytest.MonkeyPatch, least_free_bytes: int) -> Path:
    """A folder of this test, which is removed at once."""
    monkeypatch.setattr(temporary, "MIN_FREE_BYTES", least_free_bytes)
    path = short_folder()
    path.rmdir()
    return path


@pytest.mark.parametrize("least_free_bytes", [0, 1 << 60])
def test_sockets_below_it_have_room_for_their_names(monkeypatch: pytest.MonkeyPatch, least_free_bytes: int) -> None:
    data = DataFolder(made(monkeypatch, least_free_bytes) / "d")
    longest = max(
        data.postgres_socket / ".s.PGSQL.5432", data.valkey_socket, data.control_socket, key=lambda p: len(str(p))
    )
    assert len(str(longest)) <= SOCKET_PATH_BYTES


def test_it_is_on_disk_where_memory_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MEMORY not in made(monkeypatch, 1 << 60).parents
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free:
        assert made(monkeypatch, 0).parent == MEMORY
