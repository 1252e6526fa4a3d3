"""Totals of a ledger that is older than the columns of drafts are what its events add up to."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from control.billing.rollup import roll_up
from control.billing.verification import last_days, verify
from gateway.metering.ledger.ledger import Ledger
from migrations import run
from storage.engine import lazy_pool
from tests.gateway.metering.rows import moment, row


async def test_totals_there_are_have_their_drafts_after_the_upgrade(empty_postgres_url: str) -> None:
    url = empty_postgres_url
    run.upgrade(url)
    choose, yesterday = random.Random(5), datetime.now(UTC).date() - timedelta(days=1)
    begin = moment(str(yesterday))
    async with lazy_pool(url, size=1, connect_timeout_s=5) as pool:
        await Ledger(pool).insert([row(choose, begin, begin + 86_399) for _ in range(100)], "g")
    roll_up(url)
    run.downgrade(url, "0028")
    run.upgrade(url)
    async with lazy_pool(url, size=1, connect_timeout_s=5) as pool:
        assert await pool.fetchval("SELECT sum(draft_tokens)::bigint FROM gateway.usage_daily") > 0
        # what came after the last run would be redone by the next, and compared with nothing
        await pool.execute("UPDATE gateway.usage_roll_up_runs SET started_at = started_at + interval '1 day'")
    assert verify(url, *last_days(2)).right
