"""Manages the folder of one journal: its lock, its files by number, and how far it has been shipped.

- `lock` is held by the one process that may write here. The kernel frees it however that process ends.
- `00000007.slj` and its like are the segments, in order.
- `00000005.bad` is a damaged segment, kept for inspection.
- `shipped` is the position up to which every closed record is in the ledger.
- `refused.jsonl` has the rows that the database rejects.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
import time
import zlib
from pathlib import Path

from contracts.errors import ConfigError
from gateway.metering.journal.disk import Disk

logger = logging.getLogger(__name__)

Position = tuple[int, int]
"""Segment number, and offset in the segment."""

_SEGMENT = ".slj"
_DAMAGED = ".bad"
_WATERMARK = struct.Struct("<QQI")


def writers(journals: Path) -> dict[str, str]:
    """The running gateways of this deployment, whose journals in this folder are locked: instance to process id,
    `unknown` if a full disk kept it from being written."""
    found = {}
    for file in sorted(journals.glob("*/lock")):
        with contextlib.suppress(OSError), file.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # only until the file is closed
            except BlockingIOError:
                found[file.parent.name] = lock.read().strip() or "unknown"
    return found


class JournalFolder:
    """The folder's paths and small files, but not its records. Methods raise OSError unless they state otherwise."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._lock: int | None = None

    @property
    def instance(self) -> str:
        """The name of the gateway instance that writes here."""
        return self.path.name

    def lock(self, timeout_s: float) -> None:
        """Lock the folder for this process, and create it if it is missing.

        Raises ConfigError if another process still has it after `timeout_s`, or if it cannot be written.
        """
        deadline_s = time.monotonic() + timeout_s
        warned = False
        while not self.try_lock(create=True):
            if time.monotonic() >= deadline_s:
                raise ConfigError(
                    f"{self.path}: this journal folder is in use by process {self._holder()}; give every gateway "
                    "instance a name of its own, or stop the other one"
                )
            if not warned:
                warned = True
                logger.warning(
                    "%s: this journal folder is in use by process %s; waiting up to %g s for it to end",
                    self.path,
                    self._holder(),
                    timeout_s,
                )
            time.sleep(0.05)

    def try_lock(self, *, create: bool) -> bool:
        """Lock the folder if it is free. Returns False if another process has it or, without `create`, if it is
        missing.

        Raises ConfigError if the folder cannot be created or written.
        """
        file = self.path / "lock"
        try:
            if create:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(
                f"{self.path}: cannot use this journal folder: {error.strerror}; it must be a folder this user can "
                "write to, on a disk with room"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        # A neighbour that has just emptied the folder removes it. Then this is the lock of a file without a name.
        if not _is_named(descriptor, file):
            os.close(descriptor)
            return False
        self._lock = descriptor
        with contextlib.suppress(OSError):  # on a full disk, the lock is valid without the process id
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return True

    def unlock(self) -> None:
        """Unlock the folder. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def segments(self) -> list[int]:
        """Numbers of the segments, ascending."""
        return sorted(int(path.stem) for path in self.path.glob(f"*{_SEGMENT}") if path.stem.isdigit())

    def next_number(self) -> int:
        """An unused segment number, as far as the folder shows."""
        damaged = [int(path.stem) for path in self.path.glob(f"*{_DAMAGED}") if path.stem.isdigit()]
        return max([0, self.shipped()[0], *self.segments(), *damaged]) + 1

    def segment(self, number: int) -> Path:
        return self.path / f"{number:08d}{_SEGMENT}"

    def quarantine(self, number: int) -> Path:
        """Set a damaged segment aside. Returns its new path."""
        aside = self.path / f"{number:08d}{_DAMAGED}"
        self._disk.rename(self.segment(number), aside)
        return aside

    def shipped(self) -> Position:
        """The position at which shipping resumes; (0, 0) if it is unknown, because shipping twice is harmless."""
        try:
            data = (self.path / "shipped").read_bytes()
        except FileNotFoundError:
            return 0, 0
        if len(data) != _WATERMARK.size:
            return 0, 0
        number, offset, crc = _WATERMARK.unpack(data)
        return (number, offset) if crc == zlib.crc32(data[:16]) else (0, 0)

    def save_shipped(self, position: Position) -> None:
        """Record durably that everything before `position` is in the ledger."""
        head = struct.pack("<QQ", *position)
        fresh = self.path / "shipped.new"
        self._disk.remove(fresh)
        descriptor = self._disk.create(fresh)
        try:
            self._disk.write(descriptor, head + struct.pack("<I", zlib.crc32(head)))
            self._disk.sync(descriptor)
        finally:
            self._disk.close(descriptor)
        self._disk.rename(fresh, self.path / "shipped")

    def refuse(self, line: bytes) -> None:
        """Store durably a row that the database rejects."""
        descriptor = os.open(self.path / "refused.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size_bytes = os.fstat(descriptor).st_size
            if self._disk.write(descriptor, line + b"\n") != len(line) + 1:
                self._disk.truncate(descriptor, size_bytes)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._disk.sync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self) -> bool:
        """Delete the folder, which must be locked. Returns False if it has anything worth keeping."""
        disposable = {"lock", "shipped", "shipped.new"}
        if any(path.name not in disposable for path in self.path.iterdir()):
            return False
        for name in ("shipped", "shipped.new", "lock"):
            self._disk.remove(self.path / name)
        try:
            self.path.rmdir()
        except OSError:
            return False  # its owner has just come back
        return True

    def _holder(self) -> str:
        try:
            return (self.path / "lock").read_text().strip() or "unknown"
        except OSError:
            return "unknown"


def _is_named(descriptor: int, path: Path) -> bool:
    """Whether the name still refers to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
