"""Records that attempts are opened, placed and closed, so that every attempt gets its row even after a crash.

- `opened` and `placed` make one write each, which survives kill -9 of this process.
- `closed` is a group commit with fdatasync off the event loop, which survives a power cut once it has returned.

The committer handles files, threads and healing. The shipper ships to the ledger. Recovery closes what a crash left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path

import msgspec

from contracts.errors import ConfigError
from gateway.metering.config import MeteringConfig
from gateway.metering.journal import frames
from gateway.metering.journal.committer import Committer, Entry, unavailable
from gateway.metering.journal.disk import Disk
from gateway.metering.journal.folder import JournalFolder, Position
from gateway.metering.journal.reader import SegmentReader
from gateway.metering.journal.records import AttemptKey, Closed, Opened, Placed
from gateway.metering.journal.replay import LeftOpen, replay
from gateway.metering.metrics import MeteringMetrics

logger = logging.getLogger(__name__)

_SAVE_EVERY_S = 1.0
_encode = msgspec.msgpack.Encoder().encode


class Journal:
    """One locked folder. Everything but `start` and `stop` is called on the event loop that called `start`."""

    def __init__(self, path: Path, config: MeteringConfig, metrics: MeteringMetrics, disk: Disk | None = None) -> None:
        """path: the folder of this gateway instance, whose name is the instance's."""
        self._config = config
        self._metrics = metrics
        self._disk = disk or Disk()
        self._folder = JournalFolder(path, self._disk)
        self._committer = Committer(
            self._folder, config, self._disk, metrics, self._report_confirmed, self._report_rejected
        )
        self._reader = SegmentReader(self._folder, metrics)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: dict[AttemptKey, list[asyncio.Future[None]]] = {}
        self._ended: list[Entry] = []
        """Closed records of this turn of the loop."""
        self._saved_at_s = 0.0
        self.left_open: list[LeftOpen] = []
        """Attempts that an earlier run left open, until recovery has closed them."""
        self.backlog_rows = 0
        """Durable rows that have not been reported as shipped."""
        self.fresh = asyncio.Event()
        """Set when rows become durable; the shipper clears it."""

    @property
    def instance(self) -> str:
        """The name of the gateway instance."""
        return self._folder.instance

    @property
    def healthy(self) -> bool:
        """Whether requests may be admitted."""
        return self._committer.failure is None

    @property
    def failure(self) -> str | None:
        """Reason why the journal cannot be written; None while it can."""
        return self._committer.failure

    @property
    def open_attempts(self) -> int:
        """Attempts without a durable end."""
        return self._committer.open_attempts()

    async def start(self) -> None:
        """Lock the folder, read an earlier run's records, and begin a new segment.

        Raises ConfigError if another process has the folder, or if it cannot be read or written.
        """
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._folder.lock, self._config.lock_timeout_s)
        try:
            await asyncio.to_thread(self._resume)
        except BaseException:
            self._folder.unlock()
            raise

    def opened(self, record: Opened) -> None:
        """Record that an attempt begins. Raises JournalUnavailable; the request must then not be served.

        Takes one write of a few microseconds. Raises ValueError if the attempt is already open.
        """
        self._committer.append(record.key, frames.encode(frames.OPENED, _encode(record)), first=True)

    def placed(self, record: Placed) -> None:
        """Record where an attempt runs. Raises JournalUnavailable; the engine must then not be called.

        Takes one write of a few microseconds. Raises ValueError if the attempt is not open.
        """
        self._committer.append(record.key, frames.encode(frames.PLACED, _encode(record)), first=False)

    async def closed(self, record: Closed) -> None:
        """Return once the attempt's end is on stable storage.

        Raises JournalUnavailable if it is not; the record is kept and written once the disk works again. Closing an
        attempt again, or one that was never opened, has no effect. Cancelling the wait does not undo the record.
        """
        key, loop = record.key, self._loop
        assert loop is not None
        waiting = self._closing.get(key)
        if waiting is None:
            if not self._committer.is_open(key):
                return
            waiting = self._closing[key] = []
            self._ended.append((key, frames.encode(frames.CLOSED, _encode(record))))
            if len(self._ended) == 1:
                loop.call_soon(self._hand_over)
        if not self.healthy:
            raise unavailable(self.failure)
        done: asyncio.Future[None] = loop.create_future()
        waiting.append(done)
        await done

    async def stop(self) -> None:
        """Commit closed records, seal the folder and unlock it. Open attempts stay open, for the next start."""
        self._hand_over()
        await asyncio.to_thread(self._committer.stop)
        for waiting in self._closing.values():
            _reject(waiting, "stopped")
        self._reader.close()
        self._folder.unlock()

    async def read(self, position: Position, limit_rows: int) -> tuple[list[Closed], Position]:
        """Durable closed records after `position`, in order, and the position after the last of them."""
        return await asyncio.to_thread(self._reader.read, self._committer.durable(), position, limit_rows)

    @property
    def end(self) -> Position:
        """The position after the last durable record."""
        return max(self._committer.durable(), default=(0, 0))

    def shipped(self) -> Position:
        """The position at which shipping resumes after a start."""
        return self._folder.shipped()

    async def advance(self, position: Position, rows: int, *, save: bool = False) -> None:
        """Record that `rows` more are in the ledger, everything before `position`, and delete the files before it.

        The position is saved every second or so, or now with `save`. A disk error is logged: shipping twice is
        harmless.
        """
        self.backlog_rows -= rows
        now_s = time.monotonic()
        obsolete = [number for number, _ in self._committer.durable() if number < position[0]]
        if save or obsolete or now_s >= self._saved_at_s + _SAVE_EVERY_S:
            self._saved_at_s = now_s
            await asyncio.to_thread(self._advance, position)

    def refuse(self, record: Closed, reason: str) -> None:
        """Keep a row that the database rejects, for inspection. Raises OSError."""
        self._folder.refuse(msgspec.json.encode({"reason": reason, "row": msgspec.to_builtins(record)}))

    async def discard(self) -> bool:
        """Stop, and delete an emptied folder (adoption). Returns False if something in it is worth keeping."""
        self._hand_over()
        await asyncio.to_thread(self._committer.stop)
        self._reader.close()
        for number in self._folder.segments():
            self._delete(number)
        removed = self._folder.remove()
        self._folder.unlock()
        return removed

    def _hand_over(self) -> None:
        """Submit all closed records of this turn of the loop at once. The committer's thread would otherwise wake in
        the middle of the turn, and contend for the interpreter lock until its end."""
        ended, self._ended = self._ended, []
        if ended:
            self._committer.submit(ended)

    def _resume(self) -> None:
        found = replay(self._folder, self._metrics)
        self.left_open = list(found.left_open.values())
        self.backlog_rows = found.unshipped
        left_open = {
            key: frames.encode(frames.OPENED, _encode(left.opened))
            + (frames.encode(frames.PLACED, _encode(left.placed)) if left.placed is not None else b"")
            for key, left in found.left_open.items()
        }
        salvaged = [
            (msgspec.msgpack.decode(payload, type=Closed).key, frames.encode(frames.CLOSED, payload))
            for payload in found.salvaged
        ]
        try:
            self._committer.start(found.lengths, left_open, salvaged)
            # Only now, because their readable records are durable in the new segment.
            for number in found.damaged:
                logger.error("journal: damaged segment kept as %s", self._folder.quarantine(number))
            self._advance(self._folder.shipped())
        except OSError as error:
            raise ConfigError(
                f"{self._folder.path}: cannot write the journal: {error.strerror}; free some space or "
                "give another folder"
            ) from None

    def _advance(self, position: Position) -> None:
        try:
            self._folder.save_shipped(position)
        except OSError as error:
            logger.warning("journal %s: shipped position not saved: %s", self._folder.path, error)
        # By listing, not by durability, because an abandoned segment may have no durable record.
        numbers = self._folder.segments()
        for number in numbers:
            if number < position[0]:
                self._delete(number)
        self._metrics.journal_segments.set(sum(number >= position[0] for number in numbers))

    def _delete(self, number: int) -> None:
        self._committer.forget(number)
        try:
            if number in self._reader.damaged:
                self._folder.quarantine(number)
            else:
                self._disk.remove(self._folder.segment(number))
        except OSError as error:
            logger.warning("journal %s: segment %d not deleted: %s", self._folder.path, number, error)

    def _report_confirmed(self, keys: list[AttemptKey]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no caller waits any more
            self._loop.call_soon_threadsafe(self._confirm, keys)

    def _report_rejected(self, keys: list[AttemptKey]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._refuse_waiting, keys, self.failure)

    def _confirm(self, keys: list[AttemptKey]) -> None:
        for key in keys:
            for done in self._closing.pop(key, ()):
                if not done.done():
                    done.set_result(None)
        self.backlog_rows += len(keys)
        self._metrics.journal_committed.inc(len(keys))
        self.fresh.set()

    def _refuse_waiting(self, keys: list[AttemptKey], reason: str | None) -> None:
        for key in keys:
            _reject(self._closing.get(key, []), reason)


def _reject(waiting: list[asyncio.Future[None]], reason: str | None) -> None:
    for done in waiting:
        if not done.done():
            done.set_exception(unavailable(reason))
    waiting.clear()
