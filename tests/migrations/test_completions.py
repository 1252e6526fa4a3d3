"""The migration adds up what completions there are as the roll-up does, and the roll-up goes on from there."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from control.completions.rollup import roll_up
from migrations import run
from tests.gateway.autocomplete.editors import completions, reports, write

TABLES = (
    "completion_hours", "detailed_completion_days", "completion_days", "project_completion_days",
    "project_completion_weeks",
)  # fmt: skip


async def test_what_is_there_is_added_up(empty_postgres_url: str) -> None:
    url, choose, now = empty_postgres_url, random.Random(3), datetime.now(UTC)
    await asyncio.to_thread(run.upgrade, url)
    made = completions(choose, now - timedelta(days=5), now, 400)
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection:
            await write(connection, made, reports(choose, made, 500))
        assert await asyncio.to_thread(roll_up, url, trace_retention_days=30) > 100
        wanted = await told(pool)
        assert all(wanted)
    await asyncio.to_thread(run.downgrade, url, "0034")
    await asyncio.to_thread(run.upgrade, url)
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        assert await told(pool) == wanted
        await pool.execute("UPDATE gateway.request_traces SET recorded_at = recorded_at - interval '10 minutes'")
        await pool.execute("UPDATE gateway.completion_events SET recorded_at = recorded_at - interval '10 minutes'")
        assert await asyncio.to_thread(roll_up, url, trace_retention_days=30) == 0


async def told(pool: Any) -> list[list[tuple[object, ...]]]:
    return [sorted(map(tuple, await pool.fetch(f"SELECT * FROM gateway.{table}"))) for table in TABLES]
