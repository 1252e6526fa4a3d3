"""Half a record at the segment's end: nothing is appended behind it, for that would be acknowledged and then cut."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pytest

from contracts.errors import JournalUnavailable
from gateway.metering.config import MeteringConfig
from gateway.metering.journal import frames
from gateway.metering.journal.disk import Disk
from gateway.metering.journal.folder import JournalFolder
from gateway.metering.journal.journal import Journal
from gateway.metering.journal.records import Opened
from tests.gateway.metering.samples import closed, metrics, opened, quick
from tests.waiting import eventually


class Interleaving:
    """A lock after whose release somebody else gets it before its holder can come back: the worst schedule there is."""

    def __init__(self, somebody: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._somebody = somebody
        self._is_taken = False

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._lock.release()
        if threading.current_thread().name == "journal" and not self._is_taken:
            self._is_taken = True
            self._somebody()
            self._is_taken = False


class FullDisk(Disk):
    """Takes half of one of the committer's writes that matches; no file can be made until `is_full` is cleared."""

    def __init__(self) -> None:
        self.takes_half_of: Callable[[bytes], bool] | None = None
        self.is_full = False

    def create(self, path: Path) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().create(path)

    def write(self, descriptor: int, data: bytes) -> int:
        by_committer = threading.current_thread().name == "journal"
        if by_committer and self.takes_half_of is not None and self.takes_half_of(data):
            self.takes_half_of, self.is_full = None, True
            return super().write(descriptor, data[: len(data) // 2])
        return super().write(descriptor, data)


SEAL = frames.encode(frames.SEAL, b"")


@pytest.mark.parametrize(
    ("half", "config"),
    [
        (lambda data: data != SEAL, quick()),
        (lambda data: data == SEAL, quick(segment_bytes=4_096)),
    ],
    ids=["of an end", "of a seal"],
)
async def test_what_was_acknowledged_beside_a_short_write_survives_the_process(
    half: Callable[[bytes], bool], config: MeteringConfig, tmp_path: Path
) -> None:
    disk = FullDisk()
    journal = Journal(tmp_path / "gw", config, metrics(), disk)
    await journal.start()
    acknowledged: list[Opened] = []
    refused = 0

    def admit_beside() -> None:
        """The event loop's thread, at the one moment that counts."""
        nonlocal refused
        if not disk.is_full or refused or acknowledged:
            return
        record = opened()
        try:
            journal.opened(record)
        except JournalUnavailable:
            refused += 1
        else:
            acknowledged.append(record)

    journal._committer._lock = Interleaving(admit_beside)  # type: ignore[assignment]
    first = opened()
    journal.opened(first)
    disk.takes_half_of = half
    while not disk.is_full:
        record = opened()
        try:
            journal.opened(record)
            await journal.closed(closed(record))
        except JournalUnavailable:
            assert disk.is_full
    await eventually(lambda: refused > 0 or bool(acknowledged))
    # The process dies here: what is in the folder is all there is.
    copy = tmp_path / "after" / "gw"
    copy.parent.mkdir()
    await asyncio.to_thread(_copy, tmp_path / "gw", copy)
    after = Journal(copy, config, metrics())
    await after.start()
    left = {each.opened.key for each in after.left_open}
    assert {first.key, *(record.key for record in acknowledged)} <= left
    assert refused > 0
    await after.stop()
    disk.is_full = False
    await eventually(lambda: journal.healthy)
    await journal.stop()


def _copy(source: Path, target: Path) -> None:
    target.mkdir()
    for file in source.iterdir():
        if file.is_file():
            (target / file.name).write_bytes(file.read_bytes())


class HalfDisk(Disk):
    """Takes half of every write."""

    def write(self, descriptor: int, data: bytes) -> int:
        return super().write(descriptor, data[: len(data) // 2])


def test_a_refused_row_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    JournalFolder(tmp_path, Disk()).refuse(b'{"row": 1}')
    with pytest.raises(OSError, match="No space left"):
        JournalFolder(tmp_path, HalfDisk()).refuse(b'{"row": 2}')
    assert (tmp_path / "refused.jsonl").read_bytes() == b'{"row": 1}\n'
