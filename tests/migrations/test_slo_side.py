"""Totals are told apart by side of a rollout; taken back, a control arm is added up with the baseline again."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from contracts.objectives import OBJECTIVES
from control.slo.adoption import adopt
from control.slo.rollup import roll_up
from control.slo.tables import COUNTS
from migrations import run
from tests.control.slo.trace_rows import trace, write

TABLES = ("slo_minutes", "slo_hours", "serving_minutes", "serving_hours")
SUMS = ", ".join(f"sum({name})::bigint" for name in COUNTS)
SIDES, CANARY = "side", "CASE WHEN canary THEN 'candidate' ELSE 'baseline' END"
TOGETHER = "CASE side WHEN 'candidate' THEN 'candidate' ELSE 'baseline' END"
Told = dict[str, set[tuple[Any, ...]]]


async def test_sides_are_told_apart_and_a_control_arm_put_together_again(empty_postgres_url: str) -> None:
    url, choose = empty_postgres_url, random.Random(2)
    await asyncio.to_thread(run.upgrade, url)
    connection = await asyncpg.connect(url)
    await adopt(connection, OBJECTIVES)
    now = datetime.now(UTC)
    await write(connection, [trace(choose, now - timedelta(minutes=choose.uniform(0, 90))) for _ in range(2_000)])
    await asyncio.to_thread(roll_up, url, trace_retention_days=30)
    apart, together = await told(connection, SIDES), await told(connection, TOGETHER)
    assert all({row[1] for row in rows} == {"baseline", "control", "candidate"} for rows in apart.values())
    await connection.close()
    await asyncio.to_thread(run.downgrade, url, "0039")
    connection = await asyncpg.connect(url)
    assert await told(connection, CANARY) == together
    await connection.close()
    await asyncio.to_thread(run.upgrade, url)
    connection = await asyncpg.connect(url)
    assert await told(connection, SIDES) == together
    await connection.close()


async def told(connection: asyncpg.Connection[Any], side: str) -> Told:
    """Of each table, by tier and side."""
    return {
        table: {
            tuple(row)
            for row in await connection.fetch(f"SELECT tier, {side}, {SUMS} FROM gateway.{table} GROUP BY 1, 2")
        }
        for table in TABLES
    }
