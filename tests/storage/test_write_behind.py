"""Rows in front of a real PostgreSQL: none is lost to a write that is cut off, and the oldest give way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest

from storage.engine import lazy_pool
from storage.write_behind import WriteBehind


@pytest.fixture
async def pool(empty_postgres_url: str) -> AsyncIterator[asyncpg.Pool[Any]]:
    pool = await lazy_pool(empty_postgres_url, size=1, connect_timeout_s=5)
    await pool.execute("CREATE TABLE written_behind (number int PRIMARY KEY)")
    yield pool
    pool.terminate()


async def write(connection: asyncpg.Connection[Any], rows: Sequence[int]) -> None:
    await connection.execute("INSERT INTO written_behind SELECT unnest($1::int[]) ON CONFLICT DO NOTHING", rows)


async def written(pool: asyncpg.Pool[Any]) -> list[int]:
    return [row["number"] for row in await pool.fetch("SELECT number FROM written_behind ORDER BY number")]


def rows_of(pool: asyncpg.Pool[Any], store: Any, dropped: list[None] | None = None) -> WriteBehind[int]:
    lost: list[None] = [] if dropped is None else dropped
    return WriteBehind(pool, store, "numbers", most=10, batch=4, on_dropped=lambda: lost.append(None))


async def test_a_batch_that_the_stop_cuts_off_is_written_by_the_next_flush(pool: asyncpg.Pool[Any]) -> None:
    begun = asyncio.Event()

    async def hangs_once(connection: asyncpg.Connection[Any], rows: Sequence[int]) -> None:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        await write(connection, rows)

    rows = rows_of(pool, hangs_once)
    for number in range(6):
        rows.add(number)
    flushing = asyncio.create_task(rows.flush())
    await begun.wait()
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    await rows.flush()
    assert await written(pool) == list(range(6))
    assert not rows


async def test_while_it_is_away_the_oldest_give_way_and_are_counted(pool: asyncpg.Pool[Any]) -> None:
    away, dropped = [True], list[None]()

    async def store(connection: asyncpg.Connection[Any], rows: Sequence[int]) -> None:
        if away[0]:
            for number in (100, 101):  # they come while the first batch is out
                waiting.add(number)
            raise asyncpg.ConnectionDoesNotExistError("away")
        await write(connection, rows)

    waiting = rows_of(pool, store, dropped)
    for number in range(10):
        waiting.add(number)
    await waiting.flush()
    assert (len(waiting), len(dropped)) == (10, 2)
    away[0] = False
    await waiting.flush()
    assert await written(pool) == [*range(2, 10), 100, 101]


async def test_a_row_that_cannot_be_stored_is_dropped_alone(
    pool: asyncpg.Pool[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def as_text(connection: asyncpg.Connection[Any], rows: Sequence[int]) -> None:
        texts = [str(row) for row in rows]  # the server reads them, as it reads traces
        await connection.execute("INSERT INTO written_behind SELECT unnest($1::text[])::int", texts)

    dropped = list[None]()
    rows = rows_of(pool, as_text, dropped)
    for number in (*range(4), 2**31, *range(4, 8), 2**40):
        rows.add(number)
    await rows.flush()
    assert await written(pool) == list(range(8))
    assert (len(rows), len(dropped)) == (0, 2)
    assert caplog.text.count("cannot be stored") == 2


async def test_a_defect_of_the_writer_is_raised_and_loses_nothing(pool: asyncpg.Pool[Any]) -> None:
    async def broken(connection: asyncpg.Connection[Any], rows: Sequence[int]) -> None:
        raise KeyError("column")

    rows = rows_of(pool, broken)
    rows.add(1)
    with pytest.raises(KeyError):
        await rows.flush()
    assert len(rows) == 1
