from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from prometheus_client import CollectorRegistry

from contracts.usage import Finish, Outcome, Usage
from gateway.metering.journal.disk import Disk
from gateway.metering.journal.folder import JournalFolder
from gateway.metering.journal.orphan_journals import OrphanJournals
from gateway.metering.ledger.ledger import Ledger
from gateway.metering.metrics import MeteringMetrics
from tests.gateway.metering.samples import MemoryLedger, ended, opened, placed, quick, start, value
from tests.waiting import GUARD_S


async def _ask(url: str, driver: str, request_id: str, attempt: int) -> Usage | None:
    return Usage(completion_tokens=9)


def _adoption(
    own: Path, ledger: MemoryLedger, registry: CollectorRegistry | None = None, drain_timeout_s: float = 10.0
) -> OrphanJournals:
    shown = MeteringMetrics(registry or CollectorRegistry())
    config = quick(resolve_timeout_s=60)
    return OrphanJournals(own, _ask, cast(Ledger, ledger), config, shown, drain_timeout_s=drain_timeout_s)


async def test_a_vanished_neighbour_is_resolved_shipped_and_removed(tmp_path: Path) -> None:
    own, other = await start(tmp_path / "gw-0"), await start(tmp_path / "gw-1")
    done, running = await ended(other), opened()
    other.opened(running)
    other.placed(placed(running))
    ledger, registry = MemoryLedger(), CollectorRegistry()
    adoption = _adoption(tmp_path / "gw-0", ledger, registry)
    assert await adoption.look() == []
    assert await adoption.look() == []  # it lives
    await other.stop()
    assert await adoption.look() == []  # it may be about to come back
    assert await adoption.look() == [tmp_path / "gw-1"]
    assert not (tmp_path / "gw-1").exists()
    assert set(ledger.rows) == {done.key, running.key}
    row = ledger.rows[running.key]
    assert (row.outcome, row.finish, row.usage) == (Outcome.EXACT, Finish.GATEWAY_CRASH, Usage(completion_tokens=9))
    assert value(registry, "slipstream_journal_adopted_total") == 1
    assert value(registry, "slipstream_ledger_rows_total") == 2
    assert await adoption.look() == []
    await own.stop()


async def test_an_owner_that_returns_finds_an_empty_folder(tmp_path: Path) -> None:
    other = await start(tmp_path / "gw-1")
    record = opened()
    other.opened(record)
    await other.stop()
    ledger = MemoryLedger()
    adoption = _adoption(tmp_path / "gw-0", ledger)
    (tmp_path / "gw-0").mkdir()
    await adoption.look()
    adopting = asyncio.create_task(adoption.look())
    returning = asyncio.create_task(start(tmp_path / "gw-1", quick(lock_timeout_s=60)))
    adopted, again = await asyncio.gather(adopting, returning)
    # whoever was first, the attempt has one end or is still to get it
    assert len(again.left_open) + len(ledger.rows) == 1
    assert bool(adopted) == bool(ledger.rows)
    await ended(again)
    await again.stop()


async def test_a_database_that_is_away_leaves_the_folder_as_it_is(tmp_path: Path) -> None:
    other = await start(tmp_path / "gw-1")
    record = await ended(other)
    await other.stop()
    ledger = MemoryLedger()
    ledger.error = OSError("connection refused")
    adoption = _adoption(tmp_path / "gw-0", ledger, drain_timeout_s=0.05)
    (tmp_path / "gw-0").mkdir()
    await adoption.look()
    assert await adoption.look() == []
    other = await start(tmp_path / "gw-1")  # not locked, nothing lost
    assert other.backlog_rows == 1
    await other.stop()
    ledger.error = None
    adoption._drain_timeout_s = 10.0
    assert await adoption.look() == [tmp_path / "gw-1"]
    assert set(ledger.rows) == {record.key}


async def test_a_folder_stays_until_its_budgets_no_longer_wait_for_it(tmp_path: Path) -> None:
    """Fault: the folder was gone first, so a failure was final, and an owner that returned lost what it had open."""
    other = await start(tmp_path / "gw-1")
    await ended(other)
    await other.stop()
    (tmp_path / "gw-0").mkdir()
    answers = [True, False]

    async def emptied(instance: str) -> bool:
        assert instance == "gw-1"
        assert not JournalFolder(tmp_path / "gw-1", Disk()).try_lock(create=False), "its owner must not begin meanwhile"
        return answers.pop()

    adoption = _adoption(tmp_path / "gw-0", MemoryLedger())
    adoption._on_emptied = emptied
    await adoption.look()
    assert await adoption.look() == []
    assert await adoption.look() == [tmp_path / "gw-1"]
    assert not answers


async def test_an_owner_can_start_though_a_server_does_not_answer_its_adopter(tmp_path: Path) -> None:
    """Fault: its folder stayed locked for up to a minute, and it waits 15 s for the lock."""
    other = await start(tmp_path / "gw-1")
    await ended(other)
    await other.stop()
    (tmp_path / "gw-0").mkdir()
    asked: list[str] = []

    async def hangs(instance: str) -> bool:
        asked.append(instance)
        await asyncio.Event().wait()
        return True

    adoption = _adoption(tmp_path / "gw-0", MemoryLedger(), drain_timeout_s=0.2)
    adoption._on_emptied = hangs
    async with asyncio.timeout(GUARD_S):
        while not asked:
            assert await adoption.look() == []
    await (await start(tmp_path / "gw-1")).stop()


async def test_what_a_person_should_see_is_not_deleted(tmp_path: Path) -> None:
    other = await start(tmp_path / "gw-1")
    await other.stop()
    (tmp_path / "gw-1" / "00000000.bad").write_bytes(b"damaged")
    (tmp_path / "gw-0").mkdir()
    adoption = _adoption(tmp_path / "gw-0", MemoryLedger())
    await adoption.look()
    await adoption.look()
    assert (tmp_path / "gw-1" / "00000000.bad").read_bytes() == b"damaged"
    assert list((tmp_path / "gw-1").glob("*.slj")) == []
    assert await adoption.look() == []


async def test_the_adopters_own_gauges_are_left_alone(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    shown = MeteringMetrics(registry)
    shown.backlog_rows.set(41)
    shown.without_gauges().backlog_rows.set(1)
    shown.without_gauges().shipped.inc()
    assert value(registry, "slipstream_ledger_backlog_rows") == 41
    assert value(registry, "slipstream_ledger_rows_total") == 1
