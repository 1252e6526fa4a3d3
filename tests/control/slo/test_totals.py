"""Totals of any period equal those of its single minutes, and hours are read for them where an hour is whole."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from sqlalchemy import ARRAY, BigInteger, DateTime, func, literal, select

from contracts.objectives import OBJECTIVES
from control.slo.adoption import adopt
from control.slo.rollup import roll_up
from control.slo.tables import COUNTS
from control.slo.totals import totals
from storage.rows import fetch
from tests.control.slo.trace_rows import Trace, trace, write

COLUMNS = ("organization_id", "project_id", "tier", "length", "model", "pool", "side")
HOURS = 6
SUMS = ", ".join(f"sum({name})::bigint AS {name}" for name in COUNTS)
MOMENTS = ARRAY(DateTime(timezone=True))


@pytest.fixture
async def connection(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """With requests of the last hours, added up twice: late ones came in between."""
    connection = await asyncpg.connect(fresh_postgres_url)
    await adopt(connection, OBJECTIVES)
    choose = random.Random(1)
    rows = [some(choose) for _ in range(1_500)]
    for part in (rows[:1_200], rows[1_200:]):
        await write(connection, part)
        await asyncio.to_thread(roll_up, fresh_postgres_url, trace_retention_days=30)
    yield connection
    await connection.close()


def some(choose: random.Random) -> Trace:
    return trace(choose, datetime.now(UTC) - timedelta(hours=choose.uniform(0, HOURS)))


async def naive(
    connection: asyncpg.Connection[Any], edges: list[datetime], told_apart: list[str]
) -> set[tuple[Any, ...]]:
    """By the number of edges that are not behind it, and by the columns; of the minutes alone, as it once was done."""
    columns = ", ".join(told_apart)
    rows = await connection.fetch(
        f"SELECT width_bucket(minute, $1::timestamptz[]), {columns or 'NULL'}, {SUMS} FROM gateway.slo_minutes"
        f" WHERE minute >= $2 AND minute < $3 GROUP BY {', '.join(['1', *told_apart])}",
        edges,
        edges[0],
        edges[-1],
    )
    return {tuple(row) for row in rows}


def edge(choose: random.Random) -> datetime:
    """Any moment, of the hour, of the minute, or between."""
    at = datetime.now(UTC) - timedelta(hours=choose.uniform(-1, HOURS + 1))
    minute = at.replace(second=0, microsecond=0)
    return choose.choice((at, minute, minute.replace(minute=0)))


async def test_any_totals_equal_those_of_the_minutes(connection: asyncpg.Connection[Any]) -> None:
    choose, found_any = random.Random(2), 0
    for _ in range(60):
        edges = sorted({edge(choose) for _ in range(choose.choice((2, 2, 3, 9)))})
        if len(edges) < 2:
            continue
        told_apart = choose.sample(COLUMNS, choose.randrange(len(COLUMNS) + 1))
        rows = totals(edges, told_apart, by_minute=choose.random() < 0.2).c
        group = [func.width_bucket(rows.at, literal(edges, MOMENTS)), *(rows[name] for name in told_apart)]
        sums = [func.sum(rows[name]).cast(BigInteger) for name in COUNTS]
        statement = select(group[0], *(group[1:] or [literal(None)]), *sums)
        found = {tuple(row) for row in await fetch(connection, statement.group_by(*group))}
        assert found == await naive(connection, edges, told_apart), (edges, told_apart)
        found_any += len(found)
    assert found_any > 1_000


@pytest.mark.parametrize(
    ("told_apart", "read"),
    [
        ((), {"serving_hours", "serving_minutes"}),
        (("tier", "length", "model", "pool", "side"), {"serving_hours", "serving_minutes"}),
        (("organization_id", "model"), {"slo_hours", "slo_minutes"}),
        (("project_id",), {"slo_minutes"}),
    ],
)
def test_the_roll_ups_with_fewest_rows_are_read(told_apart: tuple[str, ...], read: set[str]) -> None:
    noon = datetime(2026, 11, 22, 12, tzinfo=UTC)
    cut, whole = (noon, noon + timedelta(hours=28, minutes=7)), (noon, noon + timedelta(hours=28))
    assert _tables(totals(cut, told_apart)) == read
    assert _tables(totals(whole, told_apart)) == {name for name in read if len(read) == 1 or name.endswith("hours")}
    assert _tables(totals(cut, told_apart, by_minute=True)) == {name for name in read if name.endswith("minutes")}


def _tables(statement: Any) -> set[str]:
    text = str(statement.element)
    return {name for name in ("serving_hours", "serving_minutes", "slo_hours", "slo_minutes") if f".{name}" in text}
