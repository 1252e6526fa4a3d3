"""Makes the virtual environment of the tools once, with the versions of `requirements/client-tools.txt`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.needs import missing

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements" / "client-tools.txt"
BESIDE = Path(__file__).parent / "beside_cpu_torch.py"
MARK = "client-tools.sha256"
TORCH = "torch==2.13.0"
"""Installed first and with its dependencies: a CUDA build, if the index has one, needs its libraries."""


def is_ready(venv: Path) -> bool:
    """Whether `prepare` has made it with the current versions."""
    mark = venv / MARK
    return mark.is_file() and mark.read_text() == _wanted()


def prepare(venv: Path) -> None:
    """Make it if it is not ready. Prints each step; exits with an error line if a package cannot be installed."""
    if is_ready(venv):
        return
    shutil.rmtree(venv, ignore_errors=True)
    pip = (str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile")
    steps = {
        f"making {venv}": (sys.executable, "-m", "venv", str(venv)),
        f"installing {TORCH}": (*pip, TORCH),
        # without dependencies: the tools' packages pin contradictory versions, and CUDA libraries
        f"installing {_count()} packages of {REQUIREMENTS.name}": (*pip, "--no-deps", "-r", str(REQUIREMENTS)),
    }
    for number, (step, command) in enumerate(steps.items(), 1):
        print(f"[{number}/{len(steps)}] {step}", flush=True)
        _run(step, command)
    packages = next(venv.glob("lib/python*/site-packages"))
    shutil.copy(BESIDE, packages / "sitecustomize.py")
    (venv / MARK).write_text(_wanted())


def _run(step: str, command: tuple[str, ...]) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        missing(f"the tools' environment; {step}: {error}")
    if ended.returncode:
        missing(f"the tools' environment; {step}: {_reason(ended.stdout + ended.stderr)}")


def _reason(output: str) -> str:
    """The last line that begins with ERROR, or the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no output"]
    return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])


def _count() -> int:
    return sum("==" in line for line in REQUIREMENTS.read_text().splitlines())


def _wanted() -> str:
    return hashlib.sha256(TORCH.encode() + REQUIREMENTS.read_bytes() + BESIDE.read_bytes()).hexdigest()
