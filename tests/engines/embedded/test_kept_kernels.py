"""Where compiled kernels are kept: a folder that nobody else can write to, or none."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

numba = pytest.importorskip("numba")

from engines.layers.native import compiled  # noqa: E402  needs numba


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, which is absent."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def folder() -> Path | None:
    return compiled._cache_folder.__wrapped__()


def test_they_are_kept_in_a_private_folder_that_the_next_process_finds(cache: Path) -> None:
    made = folder()
    assert made is not None
    assert made.is_relative_to(cache / "slipstream")
    assert {stat.S_IMODE(each.stat().st_mode) for each in (made, made.parent, made.parent.parent)} == {0o700}
    assert str(made) == numba.config.CACHE_DIR
    assert folder() == made


@pytest.mark.parametrize("level", ["slipstream", "slipstream/kernels"])
@pytest.mark.parametrize("kind", ["writable", "link", "file", "another owner's"])
def test_a_folder_that_others_may_write_is_not_used(
    cache: Path, tmp_path: Path, level: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    hostile = cache / level
    hostile.parent.mkdir(mode=0o700, parents=True)
    if kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        hostile.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        hostile.write_text("")
    else:
        hostile.mkdir(mode=0o700)
        if kind == "writable":
            hostile.chmod(0o777)
        elif os.geteuid() == 0:
            os.chown(hostile, 65_534, 65_534)
        else:
            pytest.skip("only root gives folders away")
    assert folder() is None
    assert numba.config.CACHE_DIR == ""
    assert "so every start compiles them" in caplog.text


def test_an_account_without_a_home_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert folder() is None
