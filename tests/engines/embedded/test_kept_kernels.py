"""Where compiled kernels are kept: a folder that nobody else can write to, or none."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.small_disk import small_disk

numba = pytest.importorskip("numba")

from numba.core.caching import UserProvidedCacheLocator  # noqa: E402  needs numba

from engines.layers.native import compile_process, compiled  # noqa: E402  needs numba

ROOT = Path(__file__).parents[3]
DAY_S = 86_400


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, which is absent."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled, "_cache_folder", folder)
    return tmp_path / "cache"


def _next(number: int) -> int:
    return number + 1


def new_kernel() -> Any:
    """As another process has it: not compiled."""
    return compiled.cached(compiled.compiled(_next))


folder = compiled._cache_folder.__wrapped__  # uncached: each test has a cache of its own


def test_they_are_kept_in_a_private_folder(cache: Path) -> None:
    made = folder()
    assert made is not None
    assert made.is_relative_to(cache / "slipstream")
    assert {stat.S_IMODE(each.stat().st_mode) for each in (made, made.parent, made.parent.parent)} == {0o700}
    assert str(made) == numba.config.CACHE_DIR
    assert folder() == made


KERNEL = """
from engines.layers.native import compiled

def double(number):
    return 2 * number

kernel = compiled.cached(compiled.compiled(double))
assert kernel(3) == 6
print(compiled.marker_file("double"), sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


def test_the_next_process_compiles_nothing(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)

    def ran() -> list[str]:
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(tmp_path / "kernel.py")]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()

    (first, *compiling), (second, *loading) = ran(), ran()
    assert first == second
    assert (compiling, loading) == (["0", "1"], ["1", "0"])


def test_a_form_is_compiled_in_another_process_until_that_succeeds(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commands: list[list[str]] = []
    failures = [subprocess.CalledProcessError(1, "python", stderr=b"no compiler"), None]

    def run(command: list[str], **_: Any) -> None:
        commands.append(command[1:])
        if error := failures.pop(0):
            raise error

    monkeypatch.setattr(subprocess, "run", run)
    form = compile_process.Form(2, 4, coded=True)
    for _ in range(3):
        compile_process.compile_in_subprocess(form)
    assert commands == [["-m", compile_process.__name__, "2", "4", "1"]] * 2, (
        "the first failed, and the third found them"
    )
    assert "no compiler" in caplog.text
    assert compiled.marker_file("2-4-1") != compiled.marker_file("2-4-0")


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


@pytest.mark.parametrize("torn", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("left_bytes", [0, 40])
def test_a_torn_file_is_compiled_again_and_replaced(cache: Path, torn: str, left_bytes: int) -> None:
    new_kernel()(1)
    marker = compiled.marker_file("form")
    assert marker is not None
    marker.touch()
    [file] = cache.rglob(torn)
    os.truncate(file, left_bytes)
    damaged = new_kernel()
    assert damaged(1) == 2
    assert not damaged.stats.cache_hits
    assert not marker.exists()  # the next start compiles the kernels of all forms that it lacks
    healed = new_kernel()
    assert healed(1) == 2
    assert healed.stats.cache_hits


@pytest.mark.usefixtures("cache")
def test_a_kernel_that_cannot_be_cached_is_compiled(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = new_kernel()
    subfolder = Path(made.stats.cache_path)
    shutil.rmtree(subfolder)
    subfolder.touch()
    assert made(1) == 2
    assert "kernel _next cannot be cached, so the next start compiles it again" in caplog.text
    caplog.clear()
    assert new_kernel()(1) == 2
    assert "kernel _next cannot be cached" in caplog.text
    monkeypatch.setattr(compiled.KernelCache, "must_save", True)
    with pytest.raises(OSError, match="File exists"):
        made(1.0)
    with pytest.raises(RuntimeError, match="no locator available"):
        new_kernel()


@pytest.mark.usefixtures("cache")
def test_the_process_that_only_compiles_fails_where_it_cannot_save(caplog: pytest.LogCaptureFixture) -> None:
    form = compile_process.Form(together=1, vectors=4, coded=False)
    marker = compiled.marker_file("1-4-0")
    assert marker is not None
    (marker.parent / UserProvidedCacheLocator.get_suitable_cache_subpath(compiled.__file__)).touch()
    compile_process.compile_in_subprocess(form)
    assert "the process that compiles the kernels failed, so this one compiles them" in caplog.text
    assert not marker.exists()


@pytest.mark.usefixtures("cache")
def test_a_full_disk_and_a_read_only_one_cost_the_cache_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk("ext4", 4_000_000) as disk:
        monkeypatch.setenv("XDG_CACHE_HOME", str(disk.path / "cache"))
        made = new_kernel()
        disk.fill()
        assert made(1) == 2
        assert "No space left on device" in caplog.text
        disk.make_read_only()
        assert folder() is None
        assert "so every start compiles them" in caplog.text


@pytest.mark.parametrize("above", [".", ".."])
def test_a_folder_in_which_others_may_rename_holds_no_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch, above: str, caplog: pytest.LogCaptureFixture
) -> None:
    base = cache / "base"
    for each in (cache, base):
        each.mkdir(mode=0o700)
    shared = (base / above).resolve()
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    shared.chmod(0o777)
    assert folder() is None
    assert f"{shared} must belong to root" in caplog.text
    assert not list(base.iterdir())
    shared.chmod(0o1777)  # sticky, like /tmp: an entry's owner alone renames it
    assert folder() is not None


def test_code_that_no_process_has_used_for_a_month_is_removed(cache: Path) -> None:
    kernels = cache / "slipstream" / "kernels"
    for each in (cache, kernels.parent, kernels):
        each.mkdir(mode=0o700)
    for days in (29, 31):
        (kernels / f"{days} days" / "native").mkdir(parents=True)
        os.utime(kernels / f"{days} days", (time.time() - days * DAY_S,) * 2)
    made = folder()
    assert made is not None
    assert {each.name for each in kernels.iterdir()} == {made.name, "29 days"}
    os.utime(made, (0, 0))
    assert folder() == made
    assert made.stat().st_mtime > time.time() - DAY_S  # it counts as used
