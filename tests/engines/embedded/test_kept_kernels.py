"""Where compiled kernels are kept: a folder that nobody else can write to, or none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

numba = pytest.importorskip("numba")

from engines.layers.native import compile_process, compiled  # noqa: E402  needs numba

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, which is absent."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


folder = compiled._cache_folder.__wrapped__  # in each test anew


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
    monkeypatch.setattr(compiled, "_cache_folder", folder)
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
