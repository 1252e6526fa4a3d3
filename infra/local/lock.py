"""One supervisor per data folder: a file lock that the kernel drops however its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
from pathlib import Path

from contracts.errors import ConfigError
from infra.local.private import folder_error


class FolderLock:
    """Held from `acquire` to `release`. The file's text is for people; only the kernel's lock counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises ConfigError, which names the process that has it."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise folder_error(self._path, error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise ConfigError(
                f"{self._path.parent}: Slipstream is already up on this data folder (pid {holder}); stop it with "
                f"`slipstream down --data {shlex.quote(str(self._path.parent))}`, or give this one its own folder with "
                "--data"
            ) from None
        self._descriptor = descriptor
        with contextlib.suppress(OSError):  # on a full disk, the lock holds without our pid in it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def held(path: Path) -> bool:
    """Whether a living process holds the lock at `path`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
