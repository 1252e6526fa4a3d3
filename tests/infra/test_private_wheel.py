"""A root whose virtual environment nobody else may enter: PostgreSQL runs from a copy, and no folder is opened up."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from infra.local.account import Account
from infra.local.binaries import postgres_binaries

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


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user never changes account")
def test_a_wheel_in_a_private_folder_is_copied_once(tmp_path: Path) -> None:
    original = postgres_binaries(None).parent.parent
    private = Path(tempfile.mkdtemp(prefix="slip-private-"))  # mode 0700
    copies: set[Path] = set()
    try:
        for name in (original.name, f"{original.name}.libs"):
            if original.with_name(name).is_dir():
                shutil.copytree(original.with_name(name), private / name, copy_function=_link_or_copy, symlinks=True)
        environment = {**os.environ, "PYTHONPATH": f"{private}{os.pathsep}{Path.cwd()}"}
        for _ in range(2):
            found = subprocess.run(
                [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
            )
            copies.add(Path(found.stdout.strip()))
        (binaries,) = copies
        assert not binaries.is_relative_to(private)
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        assert Account("nobody", 65534, 65534).reaches(binaries / "postgres")
        told = subprocess.run(
            [binaries / "postgres", "--version"], user=65534, group=65534, capture_output=True, text=True, check=True
        )
        assert "PostgreSQL) 18" in told.stdout
    finally:
        shutil.rmtree(private)
        for binaries in copies:
            if not binaries.is_relative_to(original):
                shutil.rmtree(binaries.parents[2])
