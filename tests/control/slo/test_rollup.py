"""Every minute's totals equal a plain recomputation from the traces, however often, late or out of order they came."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import OBJECTIVES, Objective
from control.slo.adoption import adopt, in_force
from control.slo.rollup import roll_up, spans, version_at
from tests.audited import all_audited
from tests.control.slo.trace_rows import Trace, naive, stored, trace, write

PROMISED = (
    *(each for each in OBJECTIVES if each.length is not LengthClass.LONG),
    Objective(Tier.CHAT, LengthClass.LONG, 2_000.0, itl_max_ms=100.0, target=0.9),  # autocomplete's: none
)
BY_CLASS = {(each.tier, each.length): each for each in PROMISED}


async def rolled_up(url: str, **given: int) -> int:
    return await asyncio.to_thread(roll_up, url, **{"trace_retention_days": 30, **given})


def some(seed: int, count: int, minutes: int = 2) -> list[Trace]:
    choose, now = random.Random(seed), datetime.now(UTC)
    return [trace(choose, now - timedelta(seconds=choose.uniform(0, minutes * 60))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(2))
async def test_totals_equal_a_plain_recomputation(
    seed: int, connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    await adopt(connection, PROMISED)
    rows = some(seed, 500)
    random.Random(seed).shuffle(rows)
    for part in (rows[:200], [], rows[200:210], rows[210:]):  # late rows of minutes that were added up before
        await write(connection, part)
        await rolled_up(fresh_postgres_url)
    expected = naive(rows, BY_CLASS)
    assert len({group[1:] for group in expected}) > 50
    assert await stored(connection) == expected
    await asyncio.gather(*(rolled_up(fresh_postgres_url) for _ in range(3)))
    assert await stored(connection) == expected


async def test_every_kind_of_request_was_among_them() -> None:
    totals = list(naive(some(0, 4_000), BY_CLASS).values())
    assert all(any(of[name] for of in totals) for name in totals[0])
    assert any(0 < of["good"] < of["counted"] < of["requests"] for of in totals)


async def test_only_what_has_news_is_redone(connection: asyncpg.Connection[Any], fresh_postgres_url: str) -> None:
    await adopt(connection, PROMISED)
    await write(connection, some(1, 50, minutes=9))
    assert await rolled_up(fresh_postgres_url) > 1
    await connection.execute("UPDATE gateway.request_traces SET recorded_at = recorded_at - interval '10 minutes'")
    assert await rolled_up(fresh_postgres_url) == 0
    late = some(2, 1)
    await write(connection, late)
    assert await rolled_up(fresh_postgres_url) == 1
    row = await connection.fetchrow("SELECT count(*) AS runs, sum(minutes) AS minutes FROM gateway.slo_roll_up_runs")
    assert row["runs"] == 3


async def test_rows_that_come_after_a_clock_was_set_back_are_added_up(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    await adopt(connection, PROMISED)
    await rolled_up(fresh_postgres_url)
    await connection.execute("UPDATE gateway.slo_roll_up_runs SET started_at = started_at + interval '2 hours'")
    rows = some(6, 50)
    await write(connection, rows)
    await rolled_up(fresh_postgres_url)
    assert await stored(connection) == naive(rows, BY_CLASS)


async def test_minutes_stay_judged_by_what_was_in_force_then(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    lax = tuple(Objective(tier, length, 3_600_000.0) for tier in Tier for length in LengthClass)
    assert await adopt(connection, PROMISED) == 1
    assert await adopt(connection, tuple(reversed(PROMISED))) == 1, "the same in another order is no change"
    async with all_audited(connection) as audited:
        assert await adopt(connection, lax) == 2
    assert [row["action"] for row in audited] == ["objectives.adopt"]
    assert set((await in_force(connection))[1]) == set(lax)
    began = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=30)
    await connection.execute("UPDATE gateway.slo_objectives SET valid_from = $1", began)
    rows = some(3, 300, minutes=90)
    await write(connection, rows)
    await rolled_up(fresh_postgres_url)
    then = [each for each in rows if each.arrived_at < began]
    now = [each for each in rows if each.arrived_at >= began]
    assert then
    assert now
    by_lax = {(each.tier, each.length): each for each in lax}
    assert await stored(connection) == naive(then, BY_CLASS) | naive(now, by_lax)


async def test_minutes_whose_traces_may_be_forgotten_are_left_alone(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    await adopt(connection, PROMISED)
    rows = some(5, 100, minutes=2 * 24 * 60)
    await write(connection, rows)
    began = datetime.now(UTC).replace(second=0, microsecond=0)
    await rolled_up(fresh_postgres_url, trace_retention_days=1)
    since = min(group[0] for group in await stored(connection))
    assert began - timedelta(hours=23) <= since
    assert await stored(connection) == naive([each for each in rows if each.arrived_at >= since], BY_CLASS)


async def test_old_minutes_are_forgotten_and_nothing_is_done_without_objectives(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    await write(connection, some(6, 20))
    assert await rolled_up(fresh_postgres_url) == 0
    assert await connection.fetchval("SELECT count(*) FROM gateway.slo_roll_up_runs") == 0
    await adopt(connection, PROMISED)
    await rolled_up(fresh_postgres_url)
    kept = await stored(connection)
    await connection.execute(
        "INSERT INTO gateway.slo_minutes SELECT (jsonb_populate_record(m,"
        " jsonb_build_object('minute', m.minute - interval '40 days'))).* FROM gateway.slo_minutes m"
    )
    await connection.execute("UPDATE gateway.slo_hours SET at = at - interval '40 days'")
    await rolled_up(fresh_postgres_url, retention_days=39)
    assert await stored(connection) == kept
    assert not await connection.fetchval("SELECT count(*) FROM gateway.slo_hours WHERE at < now() - interval '39 days'")


def test_before_the_first_objectives_the_first_ones_count() -> None:
    noon = datetime(2026, 11, 22, 12, tzinfo=UTC)
    versions = [(noon, 4), (noon + timedelta(hours=1), 5), (noon + timedelta(hours=1), 6)]
    minutes = (-60, 0, 59, 60, 600)
    assert [version_at(versions, noon + timedelta(minutes=each)) for each in minutes] == [4, 4, 4, 6, 6]


@pytest.mark.parametrize("seed", range(20))
def test_spans_hold_each_minute_once_and_no_other(seed: int) -> None:
    choose, noon = random.Random(seed), datetime(2026, 11, 22, 12, tzinfo=UTC)
    minutes = sorted({choose.randrange(400) for _ in range(choose.randrange(390))} | set(range(100, 300)))
    edges = [noon + timedelta(minutes=choose.randrange(400)) for _ in range(3)]
    found = list(spans([noon + timedelta(minutes=each) for each in minutes], edges))
    covered = []
    for begin, end in found:
        assert end - begin <= timedelta(hours=1)
        assert not [edge for edge in edges if begin < edge < end]
        covered += [
            (begin - noon) // timedelta(minutes=1) + number for number in range((end - begin) // timedelta(minutes=1))
        ]
    assert covered == minutes
