from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from contracts.usage import Finish, Outcome
from gateway.metering.journal.records import Closed
from gateway.metering.ledger.ledger import RACES, Ledger
from gateway.metering.ledger.shipper import Shipper
from gateway.metering.metrics import MeteringMetrics
from tests.control.billing.ledger_rows import find
from tests.gateway.metering.samples import TENANT, closed, journal_in, opened, quick, value


async def test_a_row_is_found_as_it_was_closed(pool: asyncpg.Pool[Any]) -> None:
    ledger = Ledger(pool)
    row = closed(opened(), tokens=17)
    assert await ledger.insert([row], "gw-3") == 1
    (found,) = await find(pool, row.opened.request_id)
    assert (found.request_id, found.attempt, found.gateway_id) == (*row.key, "gw-3")
    assert (found.organization_id, found.project_id, found.key_id) == (TENANT, TENANT, TENANT)
    assert (found.model, found.tier, found.endpoint) == ("slipstream-chat", "chat", "/v1/chat/completions")
    assert (found.stream, found.replica_id, found.billed, found.status) == (True, "chat-0", True, 200)
    assert (found.prompt_tokens, found.cached_tokens, found.completion_tokens, found.reasoning_tokens) == (12, 3, 17, 1)
    assert (found.outcome, found.finish, found.error_code) == ("exact", "complete", None)
    assert found.phases_ms == {"auth": 0.25, "decode": 12.5}
    assert abs(found.opened_at.timestamp() - row.opened.opened_at) < 1e-5
    assert abs(found.closed_at.timestamp() - row.closed_at) < 1e-5
    assert await find(pool, "req_unknown") == []


async def test_inserting_again_changes_nothing(pool: asyncpg.Pool[Any]) -> None:
    ledger = Ledger(pool)
    rows = [closed(opened(), tokens=n) for n in range(20)]
    assert await ledger.insert(rows[:10], "gw-0") == 10
    assert await ledger.insert(rows + rows, "gw-1") == 10
    changed = msgspec.structs.replace(rows[0], status=500)
    assert await ledger.insert([changed], "gw-1") == 0
    (found,) = await find(pool, rows[0].opened.request_id)
    assert (found.status, found.gateway_id) == (200, "gw-0")


async def test_every_outcome_and_finish_is_taken(pool: asyncpg.Pool[Any]) -> None:
    rows = [
        msgspec.structs.replace(
            closed(opened(), billed=False), outcome=outcome, finish=finish, replica_id=None, error_code="overloaded"
        )
        for outcome in Outcome
        for finish in Finish
    ]
    assert await Ledger(pool).insert(rows, "gw-0") == len(rows)


async def test_attempts_come_in_order(pool: asyncpg.Pool[Any]) -> None:
    ledger = Ledger(pool)
    for attempt in (1, 0, 2):
        await ledger.insert([closed(opened("req_x", attempt), billed=attempt == 2)], "gw-0")
    assert [row.attempt for row in await find(pool, "req_x")] == [0, 1, 2]


async def shipped(pool: asyncpg.Pool[Any], folder: Path, rows: list[Closed]) -> CollectorRegistry:
    """Rows on their way from a journal to the ledger; the metrics of that."""
    registry = CollectorRegistry()
    async with journal_in(folder) as journal:
        shipper = Shipper(journal, Ledger(pool), quick(), MeteringMetrics(registry))
        for row in rows:
            journal.opened(row.opened)
            await journal.closed(row)
        shipper.start()
        assert await shipper.drain(60)
        await shipper.stop()
    return registry


async def test_a_second_billed_attempt_is_recorded_as_not_billed(pool: asyncpg.Pool[Any], tmp_path: Path) -> None:
    rows = [closed(opened("req_twice", 0)), closed(opened("req_twice", 1)), *(closed(opened()) for _ in range(9))]
    registry = await shipped(pool, tmp_path / "gw", rows)
    found = await find(pool, "req_twice")
    assert sorted(row.billed for row in found) == [False, True]
    assert value(registry, "slipstream_ledger_billed_twice_total") == 1
    assert await pool.fetchval("SELECT count(*) FROM gateway.usage_events") == len(rows)


async def test_a_row_postgres_cannot_hold_is_set_aside(pool: asyncpg.Pool[Any], tmp_path: Path) -> None:
    nul = msgspec.structs.replace(opened(), model="a\0b")
    nobody = msgspec.structs.replace(opened(), key_id="not a uuid")
    large = msgspec.structs.replace(opened(), attempt=1 << 20)
    good = [opened() for _ in range(10)]
    written = map(closed, (good[0], nul, *good[1:5], nobody, large, *good[5:]))
    registry = await shipped(pool, tmp_path / "gw", list(written))
    found = await pool.fetch("SELECT request_id FROM gateway.usage_events")
    assert {row["request_id"] for row in found} == {record.request_id for record in good}
    assert value(registry, "slipstream_ledger_refused_total") == 3


async def test_several_gateways_may_ship_one_row_at_once(pool: asyncpg.Pool[Any]) -> None:
    ledger = Ledger(pool)
    for _ in range(10):  # once in five they meet in the index of billed attempts
        rows = [closed(opened()) for _ in range(300)]
        new = await asyncio.gather(*(ledger.insert(rows, f"gw-{n}") for n in range(3)))
        assert sum(new) == len(rows)


async def test_a_row_that_other_gateways_raced_for_is_no_second_billed_attempt(
    pool: asyncpg.Pool[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losing takes a moment that PostgreSQL cannot be made to wait in, so the losses are simulated."""
    ledger = Ledger(pool)
    insert, losses = ledger._insert, iter(range(RACES))

    async def raced(*arguments: Any) -> int:
        for _ in losses:
            raise asyncpg.UniqueViolationError
        return await insert(*arguments)

    monkeypatch.setattr(ledger, "_insert", raced)
    assert await ledger.insert([closed(opened())], "gw-0") == 1
