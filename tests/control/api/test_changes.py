"""The ledger of changes: expected beside measured, from raw rows; kept once the time after a change has passed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import msgspec
import pytest

from control.api.examples import example_of
from control.diagnosis.changes import ExpectedChange
from control.diagnosis.findings.finding import Cause
from slipstream.commands.changes import rows_of
from tests.control.api.people import Client, People
from tests.control.diagnosis.findings.plain_evidence import quantiles_of
from tests.control.diagnosis.findings.traffic import BEGAN, CHANGES, WINDOW, rows
from tests.control.diagnosis.stored_traffic import forget, store

MADE_AT = BEGAN + WINDOW


@pytest.fixture
async def database(people: People) -> AsyncIterator[asyncpg.Connection]:
    await people.database.execute("DELETE FROM gateway.changes")
    yield people.database
    await forget(people.database)
    await people.database.execute("DELETE FROM gateway.changes")


async def noted(client: Client, **fields: Any) -> dict[str, Any]:
    body = {"name": "slower prefill", "metric": "ttft", "expected_ms": 60, "made_at": MADE_AT.isoformat(), **fields}
    answer = await client.ask("POST", "/changes", {"window_s": 60, "statistic": "p50", **body})
    assert answer.status == 201, answer
    found: dict[str, Any] = answer.body
    return found


async def test_what_a_change_did_is_counted_from_its_requests(people: People, database: asyncpg.Connection) -> None:
    source = random.Random(41)
    before = list(rows(source, BEGAN))
    after = [CHANGES[Cause.SLOW_PREFILL](source, row) for row in rows(source, MADE_AT)]
    await forget(database)
    await store(database, [*before, *after])
    operator = await people.operator()
    made = await noted(operator)
    counted = [quantiles_of([row.ttft_ms for row in each if row.ttft_ms is not None]) for each in (before, after)]
    assert (made["before_requests"], made["after_requests"]) == (counted[0].n, counted[1].n)
    assert made["before_ms"] == pytest.approx(counted[0].p50)
    assert made["effect_ms"] == pytest.approx(counted[1].p50 - counted[0].p50)
    assert made["measured_at"] is None
    kept = await operator.ask("POST", f"/changes/{made['id']}/measure", {})
    assert kept.status == 200, kept
    await forget(database)
    (listed,) = (await operator.ask("GET", "/changes")).body["data"]
    assert listed == kept.body
    assert listed["effect_ms"] == pytest.approx(made["effect_ms"])


async def test_too_early_or_too_few_is_said(people: People, database: asyncpg.Connection) -> None:
    operator = await people.operator()
    early = await noted(operator, made_at=None)
    answer = await operator.ask("POST", f"/changes/{early['id']}/measure", {})
    assert (answer.status, "has not passed yet" in answer.body["error"]["message"]) == (409, True)
    few = await noted(operator)
    answer = await operator.ask("POST", f"/changes/{few['id']}/measure", {})
    assert (answer.status, "0 requests before" in answer.body["error"]["message"]) == (409, True)
    assert (await operator.ask("DELETE", f"/changes/{few['id']}")).status == 200
    assert (await operator.ask("POST", f"/changes/{few['id']}/measure", {})).status == 404


def test_the_ledger_adds_up_what_is_expected() -> None:
    """S0's milestones: 1,800 ms to 950 in the first quarter. Its second begins with 900, by a buffer that no change
    makes, and ends at 370 to 470; from 950 the same changes end at 420 to 520, above its promise of 500."""
    one = msgspec.convert(example_of(ExpectedChange), ExpectedChange)

    def so_far(start_ms: float, *expected_ms: float) -> list[str]:
        ledger = [
            msgspec.structs.replace(
                one, expected_ms=each_ms, before_ms=start_ms if not day else 1_500.0 if day == 1 else None,
                made_at=MADE_AT + timedelta(day),
            )
            for day, each_ms in enumerate(expected_ms)
        ]  # fmt: skip
        rows = list(rows_of(ledger))
        assert [row[3] for row in rows] == [f"{each_ms:+,.0f} ms" for each_ms in expected_ms]
        return [row[4] for row in rows]

    # prefix caching, chunked prefill, scheduling
    assert so_far(1_800.0, -250.0, -350.0, -250.0) == ["1,550 ms", "1,200 ms", "950 ms"]
    # FP8 prefill, FlashAttention-3, and the least or most of what is chosen then
    for last_ms, from_900, from_950 in ((-50.0, "470 ms", "520 ms"), (-150.0, "370 ms", "420 ms")):
        assert so_far(900.0, -300.0, -80.0, last_ms) == ["600 ms", "520 ms", from_900]
        assert so_far(950.0, -300.0, -80.0, last_ms)[-1] == from_950
