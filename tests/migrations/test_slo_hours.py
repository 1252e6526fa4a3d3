"""What the deployment served is told apart by more, and organizations get their hours, of the minutes that there are;
and it is put together again when the migration is taken back."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
from alembic.script import ScriptDirectory

from contracts.objectives import OBJECTIVES
from control.slo.adoption import adopt
from control.slo.rollup import roll_up
from control.slo.tables import COUNTS
from migrations import run
from tests.control.slo.trace_rows import trace, write

SERVING = ("serving_minutes", "serving_hours")
SUMS = ", ".join(f"sum({name})::bigint AS {name}" for name in COUNTS)
TRACES = 3_000
"""Ten a minute, so that in some minute two are alike but for their length or side."""
APART, TOGETHER = "at, tier, length, model, pool, side", "at, tier, model, pool"


async def test_totals_are_told_apart_and_put_together(empty_postgres_url: str) -> None:
    url, choose = empty_postgres_url, random.Random(1)
    await asyncio.to_thread(run.upgrade, url)
    connection = await asyncpg.connect(url)
    await adopt(connection, OBJECTIVES)
    now = datetime.now(UTC)
    traces = (trace(choose, now - timedelta(hours=choose.uniform(0, 5))) for _ in range(TRACES))
    # a release of then knew no control
    await write(connection, (each for each in traces if each.side != "control"))
    await asyncio.to_thread(roll_up, url, trace_retention_days=30)
    apart, together = await told(connection, APART), await told(connection, TOGETHER)
    hours = await connection.fetch(f"SELECT at, organization_id, {SUMS} FROM gateway.slo_hours GROUP BY 1, 2")
    assert all(len(apart[table]) > len(together[table]) > 0 for table in SERVING)
    assert hours
    before = ScriptDirectory(str(Path(run.__file__).parent)).get_revision("0036").down_revision
    assert isinstance(before, str)
    await connection.close()
    await asyncio.to_thread(run.downgrade, url, before)
    connection = await asyncpg.connect(url)
    assert await told(connection, TOGETHER) == together
    await connection.close()
    await asyncio.to_thread(run.upgrade, url)
    connection = await asyncpg.connect(url)
    assert await told(connection, APART) == apart
    again = await connection.fetch(f"SELECT at, organization_id, {SUMS} FROM gateway.slo_hours GROUP BY 1, 2")
    assert set(again) == set(hours)
    await connection.close()


async def told(connection: asyncpg.Connection[Any], group: str) -> dict[str, set[tuple[Any, ...]]]:
    """Of each table."""
    return {
        table: {
            tuple(row)
            for row in await connection.fetch(f"SELECT {group}, {SUMS} FROM gateway.{table} GROUP BY {group}")
        }
        for table in SERVING
    }
