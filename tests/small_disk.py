"""A small file system of its own that a test can fill, empty and lose: real `no space left` and `read-only` errors."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

Kind = Literal["ext4", "tmpfs"]
UNMOUNTED = "NO REAL FULL DISK IS TESTED HERE: mounting {kind} takes root and a kernel that allows it ({reason})"


class SmallDisk:
    """A mounted file system. Use `small_disk`. path: its root; short, as the paths of sockets must be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self, leave_bytes: int = 0) -> None:
        """Take all the room there is but `leave_bytes`."""
        self.top_up(self._ballast)
        if leave_bytes:
            os.truncate(self._ballast, self._ballast.stat().st_size - leave_bytes)

    def top_up(self, path: Path) -> None:
        """Let a file grow until nothing more fits into it; on a full disk, to the end of its last block."""
        with path.open("ab", buffering=0) as file:
            for step in (1 << 20, 4_096, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"\n" * step) == step:
                        pass

    def free(self) -> None:
        """Give back what `fill` took."""
        self._ballast.unlink()

    def make_read_only(self) -> None:
        """As the kernel does when ext4 meets an error: at once, under open files, and for good."""
        _run("mount", "-o", "remount,abort", str(self.path))


@contextlib.contextmanager
def small_disk(kind: Kind, size_bytes: int) -> Iterator[SmallDisk]:
    """An empty one, unmounted at the end. Skips the test where it cannot be mounted."""
    with tempfile.TemporaryDirectory(prefix="slip-disk-") as folder:
        path, image = Path(folder) / "d", Path(folder) / "image"
        path.mkdir()
        try:
            if kind == "tmpfs":
                _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path))
            else:
                with image.open("wb") as file:
                    file.truncate(size_bytes)
                _run("mkfs.ext4", "-q", "-m", "0", str(image))
                _run("mount", "-o", "loop", str(image), str(path))
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            pytest.skip(UNMOUNTED.format(kind=kind, reason=getattr(error, "stderr", "").strip() or error))
        try:
            yield SmallDisk(path)
        finally:
            _run("umount", "-l", str(path))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
