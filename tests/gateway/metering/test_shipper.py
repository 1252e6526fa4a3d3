from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from gateway.metering.journal.journal import Journal
from gateway.metering.journal.records import Closed
from gateway.metering.ledger.ledger import Ledger
from gateway.metering.ledger.shipper import Shipper
from gateway.metering.metrics import MeteringMetrics
from tests.gateway.metering.samples import MemoryLedger, closed, journal_in, opened, quick, value
from tests.waiting import eventually


class Shipping:
    """Ships from a folder's journals to a ledger in memory, run after run, and shows one set of metrics."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = MemoryLedger()
        self.registry = CollectorRegistry()
        self._shown = MeteringMetrics(self.registry)

    @contextlib.asynccontextmanager
    async def running(self, **changes: float) -> AsyncIterator[tuple[Journal, Shipper]]:
        """One run; changes: of the shipper's settings."""
        async with journal_in(self.folder) as journal:
            shipper = Shipper(journal, cast(Ledger, self.ledger), quick(**changes), self._shown)
            shipper.start()
            yield journal, shipper
            await shipper.stop()

    def shown(self, name: str) -> float:
        return value(self.registry, f"slipstream_ledger_{name}")


@pytest.fixture
def shipping(tmp_path: Path) -> Shipping:
    return Shipping(tmp_path / "gw")


async def _write(journal: Journal, count: int) -> list[Closed]:
    written = [closed(opened()) for _ in range(count)]
    for row in written:
        journal.opened(row.opened)
    await asyncio.gather(*(journal.closed(row) for row in written))
    return written


async def test_rows_reach_the_ledger_as_they_were_closed(shipping: Shipping) -> None:
    async with shipping.running(batch_rows=7) as (journal, shipper):
        written = await _write(journal, 30)
        assert await shipper.drain(60)
        written += await _write(journal, 30)
        assert await shipper.drain(60)
        assert shipping.ledger.rows == {row.key: row for row in written}
        assert [shipping.shown(name) for name in ("rows_total", "duplicates_total", "backlog_rows")] == [60, 0, 0]


async def test_a_drain_ends_although_rows_keep_coming(shipping: Shipping) -> None:
    class Busy(MemoryLedger):
        left = 200

        async def insert(self, rows: Sequence[Closed], gateway_id: str) -> int:
            if self.left:  # other requests end during each statement
                self.left -= 1
                await _write(journal, 1)
            return await super().insert(rows, gateway_id)

    shipping.ledger = ledger = Busy()
    async with shipping.running() as (journal, shipper):
        written = await _write(journal, 1)
        assert await shipper.drain(60)
        assert written[0].key in ledger.rows
        assert ledger.left, "a recount waits for this gateway's rows of before, not for a gateway without requests"
        ledger.left = 0


async def test_nothing_is_lost_while_the_database_is_away(shipping: Shipping) -> None:
    shipping.ledger.error = OSError("connection refused")
    async with shipping.running() as (journal, shipper):
        written = await _write(journal, 50)
        await eventually(lambda: shipping.shown("errors_total") > 2)
        assert shipping.shown("backlog_rows") == 50
        assert shipping.shown("oldest_seconds") > 0
        assert not await shipper.drain(0.05), "a drain that cannot end says so"
    async with shipping.running() as (journal, shipper):
        assert journal.backlog_rows == 50
        shipping.ledger.error = None
        assert await shipper.drain(60)
        assert list(shipping.ledger.rows.values()) == written  # and in order
        await eventually(lambda: shipping.shown("oldest_seconds") == 0)


async def test_a_commit_whose_answer_was_lost_doubles_nothing(shipping: Shipping) -> None:
    shipping.ledger.error_after = asyncpg.ConnectionDoesNotExistError("closed in the middle of the operation")
    async with shipping.running() as (journal, shipper):
        await _write(journal, 10)
        assert await shipper.drain(60)
        assert len(shipping.ledger.rows) == 10
        assert shipping.shown("duplicates_total") > 0
        assert shipping.shown("rows_total") + shipping.shown("duplicates_total") == 10


async def test_a_stop_in_the_middle_ships_again_and_counts_once(shipping: Shipping) -> None:
    written = []
    for _ in range(5):
        async with shipping.running(batch_rows=3) as (journal, _shipper):
            written += await _write(journal, 20)
            await eventually(lambda: len(shipping.ledger.rows) > 5)
    async with shipping.running() as (_journal, shipper):
        assert await shipper.drain(60)
        assert shipping.ledger.rows == {row.key: row for row in written}


async def test_a_row_the_database_refuses_is_set_aside_and_holds_up_no_other(shipping: Shipping) -> None:
    class Picky(MemoryLedger):
        async def insert(self, rows: object, gateway_id: str) -> int:
            if any(row.key == bad.key for row in rows):  # type: ignore[attr-defined]
                raise asyncpg.DataError("invalid input syntax for type uuid")
            return await super().insert(rows, gateway_id)  # type: ignore[arg-type]

    async with journal_in(shipping.folder, quick(segment_bytes=1 << 20)) as journal:
        written = await _write(journal, 40)
    bad, shipping.ledger = written[17], Picky()
    async with shipping.running() as (_, shipper):
        assert await shipper.drain(60)
    assert set(shipping.ledger.rows) == {row.key for row in written} - {bad.key}
    assert shipping.shown("refused_total") == 1
    kept = [json.loads(line) for line in (shipping.folder / "refused.jsonl").read_text().splitlines()]
    assert [line["row"][0][0] for line in kept] == [bad.opened.request_id]
    assert "uuid" in kept[0]["reason"]


async def test_an_unreadable_row_is_reported_and_the_rest_is_shipped(tmp_path: Path) -> None:
    ledger, registry = MemoryLedger(), CollectorRegistry()
    async with journal_in(tmp_path / "gw", quick(segment_bytes=1 << 20), registry=registry) as journal:
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
