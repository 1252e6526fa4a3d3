"""Totals that were rolled up before adapters were told apart in them are told apart by the migration, and put together
again when it is taken back."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
from alembic.script import ScriptDirectory
from msgspec.structs import replace

from control.billing.rollup import roll_up
from control.billing.verification import verify
from gateway.metering.ledger.ledger import Ledger
from migrations import run
from tests.gateway.metering.rows import moment, row

BEGIN, END = moment("2026-03-01 20:00"), moment("2026-03-02 04:00")
TOLD = "requests, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, amount_micro"
OWNERS = "organization_id, project_id, key_id, model, tier"


async def test_totals_are_told_apart_and_put_together(empty_postgres_url: str) -> None:
    url, choose = empty_postgres_url, random.Random(1)
    await asyncio.to_thread(run.upgrade, url)
    made = [row(choose, BEGIN, END) for _ in range(300)]
    rows = [
        replace(each, opened=replace(each.opened, adapter=choose.choice((None, None, "support", "legal"))))
        for each in made
    ]
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await Ledger(pool).insert(rows, "g")
        await asyncio.to_thread(roll_up, url)
        apart, together = await told(pool, f"{OWNERS}, adapter"), await told(pool, OWNERS, summed=True)
        assert {each["adapter"] for each in apart} == {"", "support", "legal"}
    before = ScriptDirectory(str(Path(run.__file__).parent)).get_revision("0031").down_revision
    assert isinstance(before, str)
    await asyncio.to_thread(run.downgrade, url, before)
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        assert await told(pool, OWNERS) == together
    await asyncio.to_thread(run.upgrade, url)
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        assert await told(pool, f"{OWNERS}, adapter") == apart
        days = [each["day"] for each in await pool.fetch("SELECT DISTINCT day FROM gateway.usage_daily ORDER BY 1")]
    assert (await asyncio.to_thread(verify, url, days[0], days[-1] + timedelta(days=1))).right


async def told(pool: Any, group: str, *, summed: bool = False) -> list[dict[str, Any]]:
    """Both roll-ups. summed: adapters together."""
    found = []
    for table, time in (("usage_hourly", "hour"), ("usage_daily", "day")):
        sums = ", ".join(f"sum({name})::bigint AS {name}" for name in TOLD.split(", ")) if summed else TOLD
        by = f"GROUP BY {time}, {group}" if summed else ""
        found += await pool.fetch(f"SELECT {time}, {group}, {sums} FROM gateway.{table} {by} ORDER BY {time}, {group}")
    return [dict(each) for each in found]
