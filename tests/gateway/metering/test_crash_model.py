"""The journal, the shipper and recovery against a model, over crashes of process, machine and disk."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from contracts.errors import JournalUnavailable
from contracts.usage import Usage
from gateway.metering.journal.disk import Disk
from gateway.metering.journal.journal import Journal
from gateway.metering.journal.records import AttemptKey, Closed, Opened
from gateway.metering.journal.recovery import Recovery
from gateway.metering.ledger.ledger import Ledger
from gateway.metering.ledger.shipper import Shipper
from tests.examples import examples
from tests.gateway.metering.samples import MemoryLedger, closed, metrics, opened, placed, quick
from tests.temporary import short_folder
from tests.waiting import eventually

ResultT = TypeVar("ResultT")
# An index, taken modulo what there is: that depends on races (was a write faster than a crash), which drawing must not.
PICK = st.integers(0, 99)


class CrashingDisk(Disk):
    """A disk that knows what is on stable storage and can stop at any moment."""

    def __init__(self) -> None:
        self.dead = False
        self.failing = False
        self.free = threading.Event()
        """Cleared: fdatasync hangs."""
        self.free.set()
        self._paths: dict[int, Path] = {}
        self._stable: dict[Path, int] = {}
        self._unnamed: set[Path] = set()
        """New files whose folder was not synced: their names may be lost."""

    def _check(self) -> None:
        if self.dead or self.failing:
            raise OSError(errno.EIO, "I/O error")

    def create(self, path: Path) -> int:
        self._check()
        descriptor = super().create(path)
        self._paths[descriptor] = path
        self._stable[path] = 0
        self._unnamed.add(path)
        return descriptor

    def write(self, descriptor: int, data: bytes) -> int:
        self._check()
        return super().write(descriptor, data)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        if not self.dead:
            super().truncate(descriptor, size_bytes)

    def sync(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        self.free.wait()
        self._check()
        self._stable[self._paths[descriptor]] = size

    def sync_folder(self, path: Path) -> None:
        self._check()
        self._unnamed = {file for file in self._unnamed if file.parent != path}

    def remove(self, path: Path) -> None:
        if not self.dead:
            super().remove(path)

    def rename(self, old: Path, new: Path) -> None:
        self._check()
        super().rename(old, new)

    def lose_power(self, chance: random.Random) -> None:
        """Cut every file somewhere behind what is stable, and drop some whose names are not."""
        for path, stable in self._stable.items():
            if path in self._unnamed and chance.random() < 0.5:
                path.unlink(missing_ok=True)
            elif path.exists():
                os.truncate(path, chance.randint(stable, max(stable, path.stat().st_size)))


class Crashes(RuleBasedStateMachine):
    """model: what callers have been promised."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = short_folder()
        self.ledger = MemoryLedger()
        self.config = quick(batch_rows=3, resolve_timeout_s=60)
        self.open: dict[AttemptKey, Opened] = {}
        self.placed: set[AttemptKey] = set()
        self.promised: dict[AttemptKey, Closed] = {}
        self.ever: set[AttemptKey] = set()
        self.waiting: dict[AttemptKey, tuple[Closed, asyncio.Task[None]]] = {}

    def run(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Let the gateway's loop turn."""
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 60))

    @initialize()
    def begin(self) -> None:
        """The first start."""
        self._start()

    def _start(self) -> None:
        self.disk = CrashingDisk()
        self.journal = Journal(self.folder / "gw", self.config, metrics(), self.disk)
        self.run(self.journal.start())

    # what callers do

    @precondition(lambda self: not self.disk.failing)
    @rule()
    def admit(self) -> None:
        """One more attempt."""
        record = opened(f"req_{len(self.ever):032x}")
        self.journal.opened(record)
        self.open[record.key] = record
        self.ever.add(record.key)

    @precondition(lambda self: not self.disk.failing)
    @rule(pick=PICK)
    def place(self, pick: int) -> None:
        """It gets an engine."""
        if not self.open:
            return
        record = self._one(pick)
        self.journal.placed(placed(record))
        self.placed.add(record.key)

    @precondition(lambda self: not self.disk.failing and self.disk.free.is_set())
    @rule(pick=PICK, tokens=st.integers(0, 9))
    def finish(self, pick: int, tokens: int) -> None:
        """It ends, and that is promised."""
        if not self.open:
            return
        row = closed(self._one(pick), tokens)
        self.run(self.journal.closed(row))
        self._promise(row)

    @precondition(lambda self: not self.disk.failing)
    @rule(pick=PICK, tokens=st.integers(0, 9))
    def finish_slowly(self, pick: int, tokens: int) -> None:
        """It ends while the disk is busy: written perhaps, promised not yet."""
        self.disk.free.clear()
        if not self.open:
            return
        row = closed(self._one(pick), tokens)
        if row.key not in self.waiting:
            self.waiting[row.key] = row, self.loop.create_task(self.journal.closed(row))
            self.run(asyncio.sleep(0))

    @precondition(lambda self: not self.disk.free.is_set())
    @rule()
    def catch_up(self) -> None:
        """The disk is done with what it was busy with."""
        self.disk.free.set()
        self._collect()

    # what the shipper does

    @precondition(lambda self: self.disk.free.is_set())
    @rule()
    def ship_all(self) -> None:
        """The database is there."""

        async def ship() -> None:
            shipper = self._shipper()
            assert await shipper.drain(60)
            await shipper.stop()

        self.run(ship())
        assert set(self.promised) <= set(self.ledger.rows)

    @precondition(lambda self: self.disk.free.is_set())
    @rule(turns=st.integers(0, 40), lost=st.booleans())
    def ship_some(self, turns: int, lost: bool) -> None:
        """The gateway stops in the middle of shipping, perhaps with a commit whose answer is lost."""

        async def ship() -> None:
            shipper = self._shipper()
            self.ledger.error_after = OSError("connection reset") if lost else None
            for _ in range(turns):
                await asyncio.sleep(0)
            await shipper.stop()
            self.ledger.error_after = None

        self.run(ship())

    # what goes wrong

    @precondition(lambda self: self.disk.free.is_set() and not self.disk.failing)
    @rule(pick=PICK)
    def disk_fails(self, pick: int) -> None:
        """An end cannot be written: it is not promised, and nothing is admitted."""
        self.disk.failing = True
        if self.open:
            row = closed(self._one(pick), 77)
            try:
                self.run(self.journal.closed(row))
            except JournalUnavailable:
                pass
            else:
                raise AssertionError("promised on a broken disk")
            self.waiting[row.key] = row, self.loop.create_task(asyncio.sleep(0))
        try:
            self.journal.opened(opened())
        except JournalUnavailable:
            pass
        else:
            raise AssertionError("admitted on a broken disk")

    @precondition(lambda self: self.disk.failing)
    @rule()
    def disk_heals(self) -> None:
        """And with it the journal, which then has what it could not write."""
        self.disk.failing = False
        self.run(eventually(lambda: self.journal.healthy))
        for row, _ in self.waiting.values():
            self.run(self.journal.closed(row))
        self._collect()

    @rule()
    def restart(self) -> None:
        """In order."""
        self.disk.failing = False
        self.disk.free.set()
        if not self.journal.healthy:
            self.run(eventually(lambda: self.journal.healthy))
        self.run(self.journal.stop())
        self._settle_waiting()
        self._start()
        self._check_start(power=False)

    @rule()
    def kill(self) -> None:
        """The process dies; what it wrote stays."""
        self._crash()
        self._start()
        self._check_start(power=False)

    @rule(seed=st.integers(0, 1_000))
    def lose_power(self, seed: int) -> None:
        """The machine dies; what was not synced may be gone."""
        self._crash()
        self.disk.lose_power(random.Random(seed))
        self._start()
        self._check_start(power=True)

    @precondition(lambda self: not self.disk.failing and self.disk.free.is_set())
    @rule()
    def recover(self) -> None:
        """Ask about what is left open; the engine knows every other attempt."""
        left = [each.opened.key for each in self.journal.left_open]
        self.run(Recovery(self.journal, _ask, self.config, metrics()).resolve())
        for key in left:
            if key in self.open:
                del self.open[key]
                self.placed.discard(key)
        assert self.journal.left_open == []

    @invariant()
    def the_ledger_has_only_what_was_admitted(self) -> None:
        """And each promised row as it was promised."""
        assert set(self.ledger.rows) <= self.ever
        for key, row in self.promised.items():
            assert self.ledger.rows.get(key, row) == row

    def teardown(self) -> None:
        """After one last start, with recovery and a database: everything has its row."""
        try:
            if hasattr(self, "journal"):
                self.restart()
                admitted = set(self.open) | set(self.promised)
                self.recover()
                self.ship_all()
                assert admitted <= set(self.ledger.rows)
                for key, row in self.promised.items():
                    assert self.ledger.rows[key] == row
                assert self.journal.backlog_rows == 0
                self.run(self.journal.stop())
        finally:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.folder)

    def _one(self, pick: int) -> Opened:
        return self.open[sorted(self.open)[pick % len(self.open)]]

    def _shipper(self) -> Shipper:
        shipper = Shipper(self.journal, cast(Ledger, self.ledger), self.config, metrics())
        shipper.start()
        return shipper

    def _promise(self, row: Closed) -> None:
        # closing again changes nothing: an earlier end that was only slow is the one that counts
        slow = self.waiting.pop(row.key, None)
        self.promised[row.key] = slow[0] if slow is not None else row
        del self.open[row.key]

    def _collect(self) -> None:
        for row, task in list(self.waiting.values()):
            self.run(task_result(task))
            self._promise(row)

    def _settle_waiting(self) -> None:
        for row, task in list(self.waiting.values()):
            try:
                self.run(task_result(task))
            except JournalUnavailable:
                continue
            if row.key in self.open:
                self._promise(row)

    def _crash(self) -> None:
        self.disk.dead = True
        self.disk.free.set()
        self.run(self.journal.stop())
        for _, task in self.waiting.values():
            self.run(asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 60))

    def _check_start(self, *, power: bool) -> None:
        """What the new run finds is what the model knows."""
        self.waiting.clear()
        left = {each.opened.key: each.placed for each in self.journal.left_open}
        assert set(left) <= set(self.open)
        assert not set(left) & set(self.promised)
        if not power:
            for key in self.placed & set(left):
                assert left[key] is not None
        # an end that was never promised may have been written, and after a power cut an opening may be gone
        durable = {row.key for row in self.run(_rows(self.journal))} | set(self.ledger.rows)
        assert set(self.promised) <= durable
        if not power:
            assert set(self.open) <= set(left) | durable
        self.open = {key: record for key, record in self.open.items() if key in left}
        self.placed = {key for key, where in left.items() if where is not None}


async def task_result(task: asyncio.Task[None]) -> None:
    """Its result or its error."""
    await task


async def _rows(journal: Journal) -> list[Closed]:
    found: list[Closed] = []
    position = journal.shipped()
    while True:
        more, position = await journal.read(position, 100)
        if not more:
            return found
        found += more


async def _ask(url: str, driver: str, request_id: str, attempt: int) -> Usage | None:
    return Usage(completion_tokens=1) if int(request_id[-1], 16) % 2 else None


@pytest.mark.hypothesis
def test_crashes_lose_and_double_nothing() -> None:
    run_state_machine_as_test(
        Crashes,
        settings=examples(nightly=200, gate=15, stateful_step_count=40, suppress_health_check=list(HealthCheck)),
    )


def test_ends_confirmed_in_later_segments_survive_a_power_cut() -> None:
    state = Crashes()
    state.begin()
    for _ in range(30):
        state.admit()
        state.finish(0, 1)
    assert len(list(state.folder.glob("gw/*.slj"))) > 2
    state.lose_power(1)
    state.teardown()
