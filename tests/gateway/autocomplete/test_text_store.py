"""Texts in a real PostgreSQL: of organizations that want them, and gone with the wish."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from contracts.dated_request_id import mint
from contracts.generation import Caller
from control.billing.trace_retention import forget_traces
from gateway.autocomplete import text_store
from gateway.autocomplete.text_store import MAX_CHARACTERS, TextStore
from gateway.observability.metrics import GatewayMetrics
from gateway.wire.gap import Gap
from storage.engine import lazy_pool
from tests.waiting import eventually

GAP = Gap("before", "behind")


def store_on(pool: asyncpg.Pool[Any], registry: CollectorRegistry | None = None) -> TextStore:
    return TextStore(pool, GatewayMetrics(registry or CollectorRegistry()), flush_s=600)


async def organization(pool: asyncpg.Pool[Any], store_prompts: bool) -> Caller:
    made = await pool.fetchval(
        "INSERT INTO gateway.organizations (name, store_prompts) VALUES ('o', $1) RETURNING id", store_prompts
    )
    return Caller(str(made), str(uuid4()), str(uuid4()))


async def stored(pool: asyncpg.Pool[Any], caller: Caller) -> list[tuple[str, str, str | None]]:
    rows = await pool.fetch(
        "SELECT * FROM gateway.completion_texts WHERE organization_id = $1 ORDER BY request_id", caller.organization_id
    )
    return [(row["prefix"], row["suffix"], row["completion"]) for row in rows]


async def want(pool: Any, caller: Caller, store_prompts: bool) -> None:
    await pool.execute(
        "UPDATE gateway.organizations SET store_prompts = $2 WHERE id = $1", caller.organization_id, store_prompts
    )


async def test_only_who_wants_it_and_until_it_is_not_wanted_any_more(pool: asyncpg.Pool[Any]) -> None:
    store = store_on(pool)
    wants, other, never = [await organization(pool, wish) for wish in (True, True, False)]
    for caller in (wants, other, never):
        store.add(mint(), caller, GAP, "text")
    await store.flush()
    assert [await stored(pool, caller) for caller in (wants, other, never)] == [[("before", "behind", "text")]] * 2 + [
        []
    ]
    store.add(mint(), wants, GAP, "on its way")
    await want(pool, wants, False)
    assert not await stored(pool, wants), "at once"
    await store.flush()
    assert not await stored(pool, wants), "also what was waiting"
    assert len(await stored(pool, other)) == 1
    store.add(mint(), wants, GAP, "asked for while it was off")
    await want(pool, wants, True)
    store.add(mint(time.time() + 1), wants, GAP, "asked for since")
    await store.flush()
    assert await stored(pool, wants) == [("before", "behind", "asked for since")]


async def test_what_is_written_while_it_is_turned_off_is_gone_too(pool: asyncpg.Pool[Any]) -> None:
    """Either order of the two transactions: the writer holds the organization's row, or waits for it."""
    store, caller = store_on(pool), await organization(pool, True)
    async with pool.acquire() as connection:
        async with connection.transaction():
            await want(connection, caller, False)
            store.add(mint(), caller, GAP, None)
            writing = asyncio.create_task(store.flush())
            await eventually(lambda: pool.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))
        await writing
    assert not await stored(pool, caller)


async def test_of_long_and_strange_texts_what_is_next_to_the_cursor(pool: asyncpg.Pool[Any]) -> None:
    store, caller = store_on(pool), await organization(pool, True)
    long = "".join(map(chr, range(0x4E00, 0x4E00 + 2 * MAX_CHARACTERS)))
    store.add(mint(1_800_000_000), caller, Gap(long, long), long)
    store.add(mint(1_800_000_001), caller, Gap("a\0b", "\ud800c"), None)
    await store.flush()
    head, tail = long[:MAX_CHARACTERS], long[-MAX_CHARACTERS:]
    assert await stored(pool, caller) == [(tail, head, head), ("ab", "?c", None)]


async def test_a_database_that_is_away_costs_the_oldest(
    pool: asyncpg.Pool[Any], fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_store, "MAX_WAITING", 3)
    registry, caller = CollectorRegistry(), await organization(pool, True)
    away = await lazy_pool("postgresql://x@/x?host=/nowhere", size=1, connect_timeout_s=1)
    store = store_on(away, registry)
    for number in range(4):
        store.add(mint(1_800_000_000 + number), caller, Gap(str(number), ""), None)
    await store.flush()
    assert registry.get_sample_value("slipstream_completion_texts_dropped_total") == 1.0
    store._rows._pool = pool
    await store.flush()
    assert [prefix for prefix, _, _ in await stored(pool, caller)] == ["1", "2", "3"]
    away.terminate()


async def test_they_are_forgotten_with_the_traces(pool: asyncpg.Pool[Any], fresh_postgres_url: str) -> None:
    store, caller = store_on(pool), await organization(pool, True)
    for number in range(2):
        store.add(mint(1_800_000_000 + number), caller, Gap(str(number), ""), None)
    await store.flush()
    await pool.execute(
        "UPDATE gateway.completion_texts SET recorded_at = now() - interval '31 days' WHERE prefix = '0'"
    )
    assert await asyncio.to_thread(forget_traces, fresh_postgres_url, 30) == 1
    assert [prefix for prefix, _, _ in await stored(pool, caller)] == ["1"]
