from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import asyncpg
from prometheus_client import CollectorRegistry

from gateway.metering.journal.journal import Journal
from gateway.metering.journal.records import Closed
from gateway.metering.ledger.ledger import Ledger
from gateway.metering.ledger.shipper import Shipper
from gateway.metering.metrics import MeteringMetrics
from tests.gateway.metering.samples import MemoryLedger, closed, opened, quick, start, value
from tests.waiting import eventually


async def _write(journal: Journal, count: int) -> list[Closed]:
    written = [closed(opened()) for _ in range(count)]
    for row in written:
        journal.opened(row.opened)
    await asyncio.gather(*(journal.closed(row) for row in written))
    return written


def _shipper(journal: Journal, ledger: MemoryLedger, shown: MeteringMetrics, **changes: float) -> Shipper:
    shipper = Shipper(journal, cast(Ledger, ledger), quick(**changes), shown)
    shipper.start()
    return shipper


async def test_rows_reach_the_ledger_as_they_were_closed(tmp_path: Path) -> None:
    ledger, registry = MemoryLedger(), CollectorRegistry()
    shown = MeteringMetrics(registry)
    journal = await start(tmp_path / "gw")
    shipper = _shipper(journal, ledger, shown, batch_rows=7)
    written = await _write(journal, 30)
    assert await shipper.drain(60)
    written += await _write(journal, 30)
    assert await shipper.drain(60)
    assert ledger.rows == {row.key: row for row in written}
    assert value(registry, "slipstream_ledger_rows_total") == 60
    assert value(registry, "slipstream_ledger_duplicates_total") == 0
    assert value(registry, "slipstream_ledger_backlog_rows") == 0
    await shipper.stop()
    await journal.stop()


async def test_nothing_is_lost_while_the_database_is_away(tmp_path: Path) -> None:
    ledger, registry = MemoryLedger(), CollectorRegistry()
    shown = MeteringMetrics(registry)
    ledger.error = OSError("connection refused")
    journal = await start(tmp_path / "gw")
    shipper = _shipper(journal, ledger, shown)
    written = await _write(journal, 50)
    await eventually(lambda: value(registry, "slipstream_ledger_errors_total") > 2)
    assert value(registry, "slipstream_ledger_backlog_rows") == 50
    assert value(registry, "slipstream_ledger_oldest_seconds") > 0
    await shipper.stop()
    await journal.stop()

    journal = await start(tmp_path / "gw")
    assert journal.backlog_rows == 50
    shipper = _shipper(journal, ledger, shown)
    ledger.error = None
    assert await shipper.drain(60)
    assert list(ledger.rows.values()) == written  # and in order
    assert value(registry, "slipstream_ledger_oldest_seconds") == 0
    await shipper.stop()
    await journal.stop()


async def test_a_commit_whose_answer_was_lost_doubles_nothing(tmp_path: Path) -> None:
    ledger, registry = MemoryLedger(), CollectorRegistry()
    shown = MeteringMetrics(registry)
    ledger.error_after = asyncpg.ConnectionDoesNotExistError("closed in the middle of the operation")
    journal = await start(tmp_path / "gw")
    shipper = _shipper(journal, ledger, shown)
    await _write(journal, 10)
    assert await shipper.drain(60)
    assert len(ledger.rows) == 10
    duplicates = value(registry, "slipstream_ledger_duplicates_total")
    assert duplicates > 0
    assert value(registry, "slipstream_ledger_rows_total") + duplicates == 10
    await shipper.stop()
    await journal.stop()


async def test_a_stop_in_the_middle_ships_again_and_counts_once(tmp_path: Path) -> None:
    ledger, registry = MemoryLedger(), CollectorRegistry()
    shown = MeteringMetrics(registry)
    written = []
    for _ in range(5):
        journal = await start(tmp_path / "gw")
        shipper = _shipper(journal, ledger, shown, batch_rows=3)
        written += await _write(journal, 20)
        await eventually(lambda: len(ledger.rows) > 5)
        await shipper.stop()
        await journal.stop()
    journal = await start(tmp_path / "gw")
    shipper = _shipper(journal, ledger, shown)
    assert await shipper.drain(60)
    assert ledger.rows == {row.key: row for row in written}
    await shipper.stop()
    await journal.stop()


async def test_a_row_the_database_refuses_is_set_aside_and_holds_up_no_other(tmp_path: Path) -> None:
    class Picky(MemoryLedger):
        async def insert(self, rows: object, gateway_id: str) -> int:
            if any(row.key == bad.key for row in rows):  # type: ignore[attr-defined]
                raise asyncpg.DataError("invalid input syntax for type uuid")
            return await super().insert(rows, gateway_id)  # type: ignore[arg-type]

    ledger, registry = Picky(), CollectorRegistry()
    shown = MeteringMetrics(registry)
    journal = await start(tmp_path / "gw", quick(segment_bytes=1 << 20))
    written = await _write(journal, 40)
    bad = written[17]
    shipper = _shipper(journal, ledger, shown)
    assert await shipper.drain(60)
    assert set(ledger.rows) == {row.key for row in written} - {bad.key}
    assert value(registry, "slipstream_ledger_refused_total") == 1
    kept = [json.loads(line) for line in (tmp_path / "gw" / "refused.jsonl").read_text().splitlines()]
    assert [line["row"][0][0] for line in kept] == [bad.opened.request_id]
    assert "uuid" in kept[0]["reason"]
    await shipper.stop()
    await journal.stop()


async def test_a_drain_that_cannot_end_says_so(tmp_path: Path) -> None:
    ledger, registry = MemoryLedger(), CollectorRegistry()
    shown = MeteringMetrics(registry)
    ledger.error = OSError("connection refused")
    journal = await start(tmp_path / "gw")
    shipper = _shipper(journal, ledger, shown)
    await _write(journal, 1)
    assert not await shipper.drain(0.05)
    await shipper.stop()
    await journal.stop()


async def test_an_unreadable_row_is_reported_and_the_rest_is_shipped(tmp_path: Path) -> None:
    ledger, registry = MemoryLedger(), CollectorRegistry()
    journal = await start(tmp_path / "gw", quick(segment_bytes=1 << 20), registry=registry)
    written = await _write(journal, 5)
    segment = max((tmp_path / "gw").glob("*.slj"))
    data = bytearray(segment.read_bytes())
    at = data.rfind(written[2].opened.request_id.encode())
    data[at] ^= 1  # after it was written, before it is read: a disk that lies
    segment.write_bytes(data)
    shipper = Shipper(journal, cast(Ledger, ledger), quick(), MeteringMetrics(CollectorRegistry()))
    shipper.start()
    assert await shipper.drain(60)
    assert set(ledger.rows) == {row.key for row in written} - {written[2].key}
    assert value(registry, "slipstream_journal_damaged_segments_total") == 1
    await shipper.stop()
    await journal.stop()
