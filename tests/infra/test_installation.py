"""`make` prints a line for each step of pip, and the end of its output where it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from infra.installation import arguments_of, constraints, main, steps

OUTPUT = """\
Obtaining file:///home/ada/slipstream
  Installing build dependencies: started
Collecting torch<2.10,>=2.6 (from slipstream==0.1.0)
  Downloading https://download.example/whl/cpu/torch-2.9.1%2Bcpu-cp311-cp311-linux_x86_64.whl.metadata (30 kB)
Collecting msgspec>=0.19 (from slipstream==0.1.0)
  Downloading msgspec-0.20.0-cp311-cp311-manylinux_2_17_x86_64.whl (219 kB)
Downloading torch-2.9.1-cp311-cp311-linux_x86_64.whl (184.9 MB)
Downloading numba-0.62.1-cp311-cp311-manylinux2014_x86_64.whl (3.8 MB)
Installing collected packages: mpmath, torch, slipstream
Successfully installed mpmath-1.3.0 slipstream-0.1.0 torch-2.9.1
"""


def test_a_line_is_printed_for_each_step() -> None:
    assert list(steps(OUTPUT.splitlines())) == [
        "looking up packages",
        "downloading torch 2.9.1 (184.9 MB)",
        "installing 3 packages",
    ]


LOCK = """\
# everything. Written by `make lock`.
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:065665c0 \\
    --hash=sha256:92432136
    # via torch
torch==2.13.0+cpu \\
    --hash=sha256:0133c3c3
"""


def test_a_locks_versions_are_constraints() -> None:
    """Fault: a new release of msgspec failed the gate in each fresh clone."""
    assert list(constraints(LOCK.splitlines())) == ["numpy==2.4.6 ; python_full_version < '3.12'", "torch==2.13.0"]


def test_pip_gets_the_constraints_of_the_lock_that_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text(LOCK)
    assert arguments_of(["-e", "."], tmp_path) == ["-e", "."]
    kept = tmp_path / "constraints.txt"
    assert arguments_of(["--versions-of", str(lock), "-e", "."], tmp_path) == ["--constraint", str(kept), "-e", "."]
    assert kept.read_text() == "numpy==2.4.6 ; python_full_version < '3.12'\ntorch==2.13.0\n"


def test_the_end_of_pips_output_is_shown_where_it_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "install.log"
    assert main(log, ["--no-index", "no-package-of-this-name"]) != 0
    said = capfd.readouterr()
    assert "No matching distribution found for no-package-of-this-name" in said.err
    assert said.err.endswith(f"pip failed; its whole output is in {log}\n")
    assert "No matching distribution" in log.read_text()


def test_it_needs_nothing_that_is_not_installed_yet() -> None:
    done = subprocess.run((sys.executable, "-S", "-c", "import infra.installation"), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
