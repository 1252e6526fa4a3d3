"""Writes the journal's files: opened and placed records at once, closed records by group commit in a separate thread.

Two threads write, the event loop's and the committer's, under one lock. Only the committer syncs, starts segments and
heals. After any disk error, the segment is abandoned, because a page cache cannot be trusted after a failed fdatasync.
The next segment begins with everything that is still open or unconfirmed, and work resumes once that is on disk.

So a segment always begins with all attempts open at that moment. An older one is needed only for closed records.
"""

from __future__ import annotations

import errno
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable

from contracts.errors import JournalUnavailable
from gateway.metering.config import MeteringConfig
from gateway.metering.journal import frames
from gateway.metering.journal.disk import Disk
from gateway.metering.journal.folder import JournalFolder
from gateway.metering.journal.records import AttemptKey
from gateway.metering.metrics import MeteringMetrics

logger = logging.getLogger(__name__)

Entry = tuple[AttemptKey, bytes]
"""(attempt, its CLOSED frame)"""
Report = Callable[[list[AttemptKey]], None]


class Committer:
    """The one writer of a locked folder. `confirmed` and `rejected` are called in the committer's thread."""

    def __init__(
        self,
        folder: JournalFolder,
        config: MeteringConfig,
        disk: Disk,
        metrics: MeteringMetrics,
        confirmed: Report,
        rejected: Report,
    ) -> None:
        self._folder = folder
        self._config = config
        self._disk = disk
        self._metrics = metrics
        self._confirmed = confirmed
        self._rejected = rejected
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[list[Entry] | bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        # Guarded by the lock:
        self._open: dict[AttemptKey, bytes] = {}
        self._durable: dict[int, int] = {}
        self._descriptor = -1
        self._number = 0
        self._size = 0
        self.failure: str | None = "not started"
        # Used only by the committer:
        self._unconfirmed: dict[AttemptKey, bytes] = {}
        self._newest = 0
        self._probe_at_s = 0.0

    def start(self, lengths: dict[int, int], left_open: dict[AttemptKey, bytes], closed: Iterable[Entry]) -> None:
        """Begin the first segment with an earlier run's open records. Returns once it is durable. Raises OSError."""
        self._durable = dict(lengths)
        self._open = dict(left_open)
        self._unconfirmed = dict(closed)
        self._newest = self._folder.next_number() - 1
        self._begin_segment()
        self._settle()
        self._thread.start()

    def append(self, key: AttemptKey, frame: bytes, *, first: bool) -> None:
        """Write an OPENED (`first`) or PLACED frame. Once this returns, the frame survives a crash of this process.

        Raises JournalUnavailable, and ValueError for an attempt that is already open or not open.
        """
        with self._lock:
            if self.failure is not None:
                raise unavailable(self.failure)
            known = self._open.get(key)
            if (known is None) is not first:
                raise ValueError(f"attempt {key} is {'not ' if known is None else 'already '}open")
            try:
                self._write(frame)
            except OSError as error:
                self._queue.put(False)  # wakes the committer, which heals
                raise unavailable(self.failure) from error
            self._open[key] = frame if known is None else known + frame

    def submit(self, entries: list[Entry]) -> None:
        """Submit CLOSED frames; `confirmed` or `rejected` follows. A rejected frame is kept and written later."""
        self._queue.put(entries)

    def is_open(self, key: AttemptKey) -> bool:
        """Whether the attempt has no durable end yet."""
        return key in self._open

    def open_attempts(self) -> int:
        """How many attempts have no durable end yet."""
        return len(self._open)

    def durable(self) -> list[tuple[int, int]]:
        """Each segment and its bytes that are known to be on disk, ascending."""
        with self._lock:
            return sorted(self._durable.items())

    def forget(self, number: int) -> None:
        """Forget a deleted segment."""
        with self._lock:
            self._durable.pop(number, None)

    def stop(self) -> None:
        """Commit all submitted records, seal the segment and end the thread."""
        if self._thread.is_alive():
            self._queue.put(True)
            self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            batch, stopping = self._take()
            if batch:
                self._commit(batch)
            if self.failure is not None and (stopping or time.monotonic() >= self._probe_at_s):
                self._heal()
        self._seal()

    def _take(self) -> tuple[list[Entry], bool]:
        """Wait for work, then take all of it."""
        batch: list[Entry] = []
        stopping = False
        try:
            if self.failure is None:
                taken = self._queue.get()
            else:
                taken = self._queue.get(timeout=max(0.001, self._probe_at_s - time.monotonic()))
            while True:
                if isinstance(taken, bool):
                    stopping = stopping or taken
                else:
                    batch += taken
                if self._queue.empty():
                    return batch, stopping
                taken = self._queue.get_nowait()
        except queue.Empty:
            return batch, stopping

    def _commit(self, batch: list[Entry]) -> None:
        """Commit the batch with one write and one fdatasync."""
        self._unconfirmed.update(batch)
        began_s = time.perf_counter()
        try:
            with self._lock:
                if self.failure is None:
                    self._write(b"".join([frame for _, frame in batch]))
                size = self._size
            if self.failure is None:
                self._disk.sync(self._descriptor)
        except OSError as error:
            self._leave(error)
        if self.failure is not None:
            self._rejected([key for key, _ in batch])
            return
        self._metrics.journal_commit_s.observe(time.perf_counter() - began_s)
        with self._lock:
            self._durable[self._number] = size
        self._confirmed(self._settle())
        if size >= self._config.segment_bytes:
            try:
                self._begin_segment()
            except OSError as error:
                self._leave(error)

    def _settle(self) -> list[AttemptKey]:
        """Mark all unconfirmed records as durable."""
        keys = list(self._unconfirmed)
        self._unconfirmed.clear()
        with self._lock:
            # Before the next segment begins, because no attempt that it carries over may have ended in this one.
            for key in keys:
                self._open.pop(key, None)
        return keys

    def _begin_segment(self) -> None:
        """Start the next file with all open and unconfirmed records, and leave the current one. Raises OSError.

        Without a failure, the loop writes to the new file before it is synced. During healing, it writes nothing, and
        the new file counts only once it is durable.
        """
        self._newest += 1
        number, path = self._newest, self._folder.segment(self._newest)
        descriptor = self._disk.create(path)
        try:
            with self._lock:
                healing = self.failure is not None
                carried = b"".join([frames.header(), *self._open.values(), *self._unconfirmed.values()])
                self._write_whole(descriptor, carried)
                if not healing:
                    self._write(frames.encode(frames.SEAL, b""))
                    previous = self._switch(descriptor, number, len(carried))
            if healing:
                self._disk.sync(descriptor)
                self._disk.sync_folder(self._folder.path)
                with self._lock:
                    previous = self._switch(descriptor, number, len(carried))
                    self.failure = None
        except OSError:
            self._disk.close(descriptor)
            self._disk.remove(path)
            raise
        try:
            if not healing:
                self._disk.sync(previous)
                self._disk.sync(descriptor)
                self._disk.sync_folder(self._folder.path)
        finally:
            if previous >= 0:
                self._disk.close(previous)
        with self._lock:
            self._durable[number] = len(carried)
        self._metrics.journal_healthy.set(int(self.failure is None))

    def _switch(self, descriptor: int, number: int, size: int) -> int:
        """Make another segment current. Returns the previous one's descriptor. The caller holds the lock."""
        previous = self._descriptor
        self._descriptor, self._number, self._size = descriptor, number, size
        return previous

    def _heal(self) -> None:
        """Try a new segment. The probe is the same write and fdatasync that work needs."""
        try:
            self._begin_segment()
        except OSError as error:
            with self._lock:
                self._fail(error)
            return
        logger.warning("journal %s: writable again, now in segment %d", self._folder.path, self._number)
        self._confirmed(self._settle())

    def _write(self, data: bytes) -> None:
        """Append to the current segment. The caller holds the lock. Raises OSError after failing the segment.

        Fails before releasing the lock: a record appended after half of this one would be acknowledged, but cut off.
        """
        try:
            self._write_whole(self._descriptor, data)
        except OSError as error:
            self._fail(error)
            raise
        self._size += len(data)

    def _write_whole(self, descriptor: int, data: bytes) -> None:
        if self._disk.write(descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, "disk full")

    def _leave(self, error: OSError) -> None:
        """Fail the segment unless `_write` has."""
        with self._lock:
            if self.failure is None:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        """Stop writing to the segment. The caller holds the lock."""
        if self.failure is None:
            logger.error("journal %s: %s; nothing is admitted until it can be written", self._folder.path, error)
        self.failure = error.strerror or str(error)
        self._probe_at_s = time.monotonic() + self._config.probe_interval_s
        self._metrics.journal_failures.inc()
        self._metrics.journal_healthy.set(0)
        try:
            self._disk.truncate(self._descriptor, self._size)
        except OSError as second:
            logger.warning("journal %s: half a record stays at its end: %s", self._folder.path, second)

    def _seal(self) -> None:
        """Seal the last segment."""
        with self._lock:
            failed, self.failure = self.failure is not None, "stopped"
            try:
                if not failed:
                    self._write(frames.encode(frames.SEAL, b""))
                    self._disk.sync(self._descriptor)
            except OSError as error:
                logger.warning("journal %s: could not be sealed: %s", self._folder.path, error)
            if self._unconfirmed:
                logger.error(
                    "journal %s: stopped with %d ends that could not be written; the next start asks the engines",
                    self._folder.path,
                    len(self._unconfirmed),
                )
            self._disk.close(self._descriptor)
            self._descriptor = -1


def unavailable(reason: str | None) -> JournalUnavailable:
    """The error that callers get while the disk fails."""
    return JournalUnavailable(f"The usage journal cannot be written ({reason}); nothing is served.", retry_after_s=1)
