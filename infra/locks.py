"""Renews the lock files in `requirements/`: every dependency at one version, every file by its hash.

`make lock` runs it. uv resolves; nothing is installed. Each lock has one purpose, so that a gateway does not ship with
a compiler and a CPU machine does not download CUDA.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

FOLDER = Path("requirements")
PYTHON = "3.11"
BUILDER = "setuptools>=68"
CUDA = re.compile(r"(nvidia|cuda)-[a-z0-9-]+|triton")
"""Packages that only PyTorch's CUDA build needs."""


class Lock(msgspec.Struct, frozen=True):
    """One lock file: the extras of `pyproject.toml` that it covers, and its build of PyTorch."""

    name: str
    purpose: str
    extras: tuple[str, ...] = ()
    cpu: bool = False
    """Whether it has PyTorch's CPU build and no CUDA packages."""

    @property
    def path(self) -> Path:
        """The lock file's path."""
        return FOLDER / f"{self.name}.lock"


LOCKS = (
    Lock("gateway", "gateway, router and worker: no engine, no PyTorch", ("s3",)),
    Lock("engine-cuda", "the embedded engine on a GPU", ("engine",)),
    Lock(
        "dev-cpu", "everything and the tools for tests, on a CPU; what CI installs", ("engine", "lsp", "dev"), cpu=True
    ),
)


def main() -> None:
    """Rewrite every lock. Raises CalledProcessError if a resolution or a download fails."""
    for lock in LOCKS:
        text = _resolved(lock.extras)
        if lock.cpu:
            text = _for_cpu(text)
        lock.path.write_text(f"# {lock.purpose}. Written by `make lock`.\n{text}")
        print(f"{lock.path}: {len(stanzas(text))} packages")  # noqa: T201  a command of its own


def stanzas(text: str) -> dict[str, str]:
    """A lock's requirements by package name, each with its hashes."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        if match := re.match(r"([a-z0-9][a-z0-9._-]*)(\[[a-z,]+\])?==", line):
            name = match[1]
            found.setdefault(name, "")  # a package may be locked at several versions, each for other Pythons
        if name:
            found[name] += line
    return found


def _resolved(extras: tuple[str, ...]) -> str:
    chosen = [argument for extra in extras for argument in ("--extra", extra)]
    # Leave out the index of each package: it is a setting of each installation.
    quiet = ("--quiet", "--no-header", "--no-emit-index-url", "--no-emit-find-links", "--no-annotate")
    # Add the build requirement: the project is installed without a build environment, which no lock would pin.
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "-", *chosen, *quiet]
    options = ["--universal", "--generate-hashes", "--upgrade", "--python-version", PYTHON]
    return subprocess.run([*command, *options], input=BUILDER, check=True, stdout=subprocess.PIPE, text=True).stdout


def _for_cpu(text: str) -> str:
    """The lock without CUDA packages, and with the CPU build of PyTorch that this machine's pip finds."""
    remaining = {name: stanza for name, stanza in stanzas(text).items() if not CUDA.fullmatch(name)}
    remaining["torch"] = _cpu_build(remaining["torch"].split()[0])
    return "".join(remaining.values())


def _cpu_build(requirement: str) -> str:
    """PyTorch's CPU wheel for Linux on x86-64, by its local version: pip would otherwise prefer the CUDA build."""
    with tempfile.TemporaryDirectory() as folder:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, requirement]
        subprocess.run(download, check=True)
        (wheel,) = Path(folder).iterdir()
        version = wheel.name.split("-")[1]
        if not version.endswith("+cpu"):
            sys.exit(f"pip found {wheel.name}, not PyTorch's CPU build; give its index in PIP_EXTRA_INDEX_URL")
        return f"torch=={version} \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


if __name__ == "__main__":
    main()
