"""Reports of editors in a real PostgreSQL: each once, in any order, however often, with a database that goes away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from contracts.generation import Caller
from gateway.autocomplete import store as store_module
from gateway.autocomplete.event import Event, EventKey, completed_request, key_of
from gateway.autocomplete.event_type import EventType
from gateway.autocomplete.store import EventStore
from gateway.db.engine import lazy_pool
from gateway.metering.journal.request_id import mint
from gateway.observability.metrics import GatewayMetrics
from tests.database import as_owner
from tests.examples import examples
from tests.waiting import eventually

ORGANIZATION, PROJECT = str(uuid4()), str(uuid4())
CALLER = Caller(ORGANIZATION, PROJECT, str(uuid4()))


@pytest.fixture
async def pool(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Pool[Any]]:
    pool = await lazy_pool(fresh_postgres_url, size=2, connect_timeout_s=5)
    yield pool
    pool.terminate()


def store_on(pool: asyncpg.Pool[Any], registry: CollectorRegistry | None = None) -> EventStore:
    return EventStore(pool, GatewayMetrics(registry or CollectorRegistry()), flush_s=600)


async def stored(pool: asyncpg.Pool[Any]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    rows = await pool.fetch("SELECT * FROM gateway.completion_events")
    return {
        (row["request_id"], str(row["project_id"]), row["choice_index"], row["view_id"], row["type"]): (
            str(row["organization_id"]),
            row["characters"],
            row["elapsed_ms"],
        )
        for row in rows
    }


REQUESTS = [mint(1_763_800_000.0 + n) for n in range(3)]
KEYS = st.builds(
    EventKey,
    st.sampled_from(REQUESTS),
    st.just(PROJECT),
    st.integers(0, 1),
    st.sampled_from(["", "v1"]),
    st.sampled_from([kind.value for kind in EventType]),
)
COUNTS = st.none() | st.integers(0, 50)
STEPS = st.lists(
    st.tuples(st.integers(0, 1), KEYS, COUNTS, COUNTS) | st.sampled_from(["flush 0", "flush 1", "flush both"]),
    max_size=40,
)


@examples(nightly=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, more=st.randoms(use_true_random=False))
async def test_two_gateways_store_each_report_once_in_any_order(
    pool: asyncpg.Pool[Any], steps: list[Any], more: Any
) -> None:
    await pool.execute("DELETE FROM gateway.completion_events")
    stores = (store_on(pool), store_on(pool))
    told: dict[EventKey, tuple[list[int | None], list[int | None]]] = {}
    for step in [*steps, *more.sample(steps, len(steps) // 2)]:  # some of it once more, in another order
        match step:
            case "flush both":
                await asyncio.gather(*(store.flush() for store in stores))
            case str():
                await stores[int(step[-1])].flush()
            case (gateway, key, characters, elapsed_ms):
                stores[gateway].add(key, Event(ORGANIZATION, characters, elapsed_ms))
                known = told.setdefault(key, ([], []))
                known[0].append(characters)
                known[1].append(elapsed_ms)
    for store in stores:
        await store.stop()

    def most(values: list[int | None]) -> int | None:
        return max((value for value in values if value is not None), default=None)

    assert await stored(pool) == {
        tuple(key): (ORGANIZATION, most(characters), most(elapsed)) for key, (characters, elapsed) in told.items()
    }


async def test_a_database_that_is_away_is_told_of_once_and_gets_all_later(
    fresh_postgres_url: str, pool: asyncpg.Pool[Any], caplog: pytest.LogCaptureFixture
) -> None:
    owner = await asyncpg.connect(as_owner(fresh_postgres_url))
    store, keys = store_on(pool), []
    with caplog.at_level(logging.WARNING, "gateway.autocomplete.store"):
        for outages in (1, 2):
            await owner.execute("ALTER TABLE gateway.completion_events RENAME TO away")
            for _ in range(3):
                keys.append(key_of(mint(), CALLER, 0, "", EventType.VIEW))
                store.add(keys[-1], Event(ORGANIZATION))
                await store.flush()
            assert len(caplog.records) == outages
            await owner.execute("ALTER TABLE gateway.away RENAME TO completion_events")
            await store.flush()
            assert set(await stored(pool)) == {tuple(key) for key in keys}
    await owner.close()


async def test_what_is_told_while_its_report_is_written_is_written_too(
    fresh_postgres_url: str, pool: asyncpg.Pool[Any]
) -> None:
    locker = await asyncpg.connect(as_owner(fresh_postgres_url))
    store, key = store_on(pool), key_of(REQUESTS[0], CALLER, 0, "", EventType.SELECT_PART)
    store.add(key, Event(ORGANIZATION, 3))
    async with locker.transaction():
        await locker.execute("LOCK TABLE gateway.completion_events IN ACCESS EXCLUSIVE MODE")
        flushing = asyncio.create_task(store.flush())
        await eventually(lambda: locker.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))
        store.add(key, Event(ORGANIZATION, 9, 40))
    await flushing
    assert (await stored(pool))[key] == (ORGANIZATION, 9, 40)
    await locker.close()


async def test_the_oldest_give_way_and_are_counted(pool: asyncpg.Pool[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_WAITING", 5)
    registry = CollectorRegistry()
    store = store_on(pool, registry)
    keys = [key_of(mint(), CALLER, 0, "", EventType.VIEW) for _ in range(8)]
    for key in [*keys, keys[-1]]:
        store.add(key, Event(ORGANIZATION))
    await store.flush()
    assert set(await stored(pool)) == {tuple(key) for key in keys[3:]}
    assert registry.get_sample_value("slipstream_autocomplete_events_dropped_total") == 3
    assert registry.get_sample_value("slipstream_autocomplete_events_total", {"type": "view"}) == 9


MINTED = "req_01a202d70761d36dcae2f931f17a0b74bfb1"


@pytest.mark.parametrize("prefix", ["req_", "cmpl-", "chatcmpl-"])
def test_an_answers_id_leads_to_its_request(prefix: str) -> None:
    request_id = mint()
    assert completed_request(prefix + request_id.removeprefix("req_")) == request_id


@pytest.mark.parametrize("text", ["", "cmpl-", "req_x", MINTED[:-1], MINTED + "0", MINTED.upper(), "req_" + "0" * 36])
def test_what_cannot_be_an_id_is_none(text: str) -> None:
    assert completed_request(text) is None


@given(
    st.sampled_from(["", "req_", "cmpl-", "chatcmpl-"]), st.text("0123456789abcdefABCDEF-_x", min_size=30, max_size=40)
)
def test_what_is_taken_for_an_id_is_one_as_we_mint_them(prefix: str, rest: str) -> None:
    found = completed_request(prefix + rest)
    assert found is None or (len(found) == len(mint()) and int(found.removeprefix("req_"), 16) and found.islower())
