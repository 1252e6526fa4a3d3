"""Of prices that are there when the migration comes, the audit log tells whose end another price's making gave."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import asyncpg

from migrations import run
from storage.audit_log import Actor, Change, record

BEGINS = [datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2090, 2095)]


async def told(connection: asyncpg.Connection[Any], action: str, version: int, before: int) -> None:
    """In the audit log."""
    change = Change(action=action, subject_id=str(version), organization_id=None, before={"version": before})
    await record(connection, Actor.system("test"), change)


async def test_ends_that_were_set_by_hand_stay_so(empty_postgres_url: str) -> None:
    url = empty_postgres_url
    await asyncio.to_thread(run.upgrade, url, "0042")
    connection = await asyncpg.connect(url)
    for model in ("planned", "by-hand", "untold"):
        versions = [
            await connection.fetchval(
                "INSERT INTO gateway.prices (model, valid_from, valid_until, input_micro, cached_input_micro,"
                " cache_write_micro, output_micro) VALUES ($1, $2, $3, 1, 1, 1, 1) RETURNING version",
                model, begin, end,
            )
            for begin, end in zip(BEGINS, [*BEGINS[1:], None], strict=True)
        ]  # fmt: skip
        if model != "untold":
            for version, after in pairwise(versions):
                await told(connection, "price.create", after, before=version)
        if model == "by-hand":
            await told(connection, "price.update", versions[0], before=versions[0])
    await connection.close()
    await asyncio.to_thread(run.upgrade, url)
    connection = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT model, valid_from FROM gateway.prices WHERE ended_by_next ORDER BY 1, 2")
    assert [tuple(row) for row in rows] == [("by-hand", BEGINS[1]), ("planned", BEGINS[0]), ("planned", BEGINS[1])]
    await connection.close()
    await asyncio.to_thread(run.downgrade, url, "0042")
