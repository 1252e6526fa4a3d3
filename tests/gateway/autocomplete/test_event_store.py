"""Reports of editors in a real PostgreSQL: each once, in any order, however often, with a database that goes away."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from contracts.dated_request_id import mint
from contracts.generation import Caller
from gateway.autocomplete import store as store_module
from gateway.autocomplete.event import Event, EventKey, completed_request, key_of
from gateway.autocomplete.event_type import EventType
from gateway.autocomplete.store import FIRST_LOOK_S, LAST_LOOK_S, MAX_OF_COMPLETION, EventStore
from gateway.observability.metrics import GatewayMetrics
from tests.databases import as_owner
from tests.examples import examples
from tests.waiting import eventually

ORGANIZATION, PROJECT, FLOODING = str(uuid4()), str(uuid4()), str(uuid4())
CALLER = Caller(ORGANIZATION, PROJECT, str(uuid4()))


class Clock:
    """The store's; a report is looked up `LAST_LOOK_S` after it came at the latest."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pass_looks(self) -> None:
        self.now_s += LAST_LOOK_S


def store_on(
    pool: asyncpg.Pool[Any], registry: CollectorRegistry | None = None, clock: Clock | None = None
) -> EventStore:
    """Without a clock of the test's, every report is due at once."""
    looks = itertools.count(step=LAST_LOOK_S)
    return EventStore(pool, GatewayMetrics(registry or CollectorRegistry()), 600, clock or (lambda: next(looks)))


async def trace(pool: asyncpg.Pool[Any], *request_ids: str, project: str = PROJECT) -> None:
    """Write traces of these completions."""
    await pool.executemany(
        "INSERT INTO gateway.request_traces (request_id, organization_id, project_id, status, total_ms, phases_ms)"
        " VALUES ($1, $2, $3, 200, 1, '{}') ON CONFLICT DO NOTHING",
        [(request_id, ORGANIZATION, project) for request_id in request_ids],
    )


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
    await trace(pool, *REQUESTS)
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
                await trace(pool, keys[-1].request_id)
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
    await trace(pool, REQUESTS[0])
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
    await trace(pool, *(key.request_id for key in keys))
    for key in [*keys, keys[-1]]:
        store.add(key, Event(ORGANIZATION))
    await store.flush()
    assert set(await stored(pool)) == {tuple(key) for key in keys[3:]}
    assert registry.get_sample_value("slipstream_autocomplete_events_dropped_total") == 3
    assert registry.get_sample_value("slipstream_autocomplete_events_total", {"type": "view"}) == 9


async def test_a_flood_of_one_organization_pushes_out_its_own_reports(
    pool: asyncpg.Pool[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MAX_WAITING", 5)
    store, key = store_on(pool), key_of(REQUESTS[0], CALLER, 0, "", EventType.VIEW)
    await trace(pool, REQUESTS[0])
    store.add(key, Event(ORGANIZATION))
    for _ in range(20):
        store.add(key_of(mint(), CALLER, 0, "", EventType.VIEW), Event(FLOODING))
    await store.flush()
    assert set(await stored(pool)) == {tuple(key)}


async def test_a_report_that_joins_no_completion_of_its_project_is_not_stored(pool: asyncpg.Pool[Any]) -> None:
    """Fault: every invented id was a row until traces are forgotten."""
    registry, clock = CollectorRegistry(), Clock()
    store = store_on(pool, registry, clock)
    asked, invented, foreign = mint(), mint(), mint()
    await trace(pool, asked)
    await trace(pool, foreign, project=str(uuid4()))
    for request_id in (asked, invented, foreign):
        store.add(key_of(request_id, CALLER, 0, "", EventType.VIEW), Event(ORGANIZATION))
    for _ in range(2):
        clock.pass_looks()
        await store.flush()
    assert {key[0] for key in await stored(pool)} == {asked}
    assert len(store) == 0
    assert registry.get_sample_value("slipstream_autocomplete_events_unmatched_total") == 2


async def test_a_report_that_comes_before_its_trace_is_stored(pool: asyncpg.Pool[Any]) -> None:
    clock = Clock()
    store, key = store_on(pool, clock=clock), key_of(mint(), CALLER, 0, "", EventType.VIEW)
    store.add(key, Event(ORGANIZATION))
    clock.now_s = FIRST_LOOK_S
    await store.flush()
    assert await stored(pool) == {}
    await trace(pool, key.request_id)
    await store.flush()
    assert len(store) == 1  # it is looked up twice, and no more
    clock.now_s = LAST_LOOK_S
    await store.flush()
    assert set(await stored(pool)) == {tuple(key)}


async def test_a_completion_has_so_many_reports(pool: asyncpg.Pool[Any]) -> None:
    request_id = mint()
    await trace(pool, request_id)
    for flush in range(3):
        store = store_on(pool)
        for number in range(MAX_OF_COMPLETION // 2 + 20):
            store.add(key_of(request_id, CALLER, 0, f"{flush}-{number}", EventType.VIEW), Event(ORGANIZATION))
        await store.stop()
    assert len(await stored(pool)) == MAX_OF_COMPLETION


async def test_a_stop_stores_the_newest_reports(pool: asyncpg.Pool[Any]) -> None:
    store, key = store_on(pool, clock=Clock()), key_of(mint(), CALLER, 0, "", EventType.VIEW)
    store.add(key, Event(ORGANIZATION))
    await trace(pool, key.request_id)
    await store.stop()
    assert set(await stored(pool)) == {tuple(key)}


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
