"""The desired state in PostgreSQL: seeded once, followed everywhere, kept while the database is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import msgspec
import pytest

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.errors import ConfigError
from contracts.generation import Tier
from gateway.desired.config import DesiredConfig
from gateway.desired.store import DesiredStateStore
from storage.engine import connect
from tests.databases import as_owner
from tests.desired_states import put, seed
from tests.gateway.auth.wire import Wire
from tests.waiting import GUARD_S, eventually

MODELS = (Model(name="slipstream-chat", tier=Tier.CHAT, pool="chat", context_tokens=2_048, aliases=("chat",)),)
POOLS = (Pool(name="chat", driver="embedded", replicas=(Replica(id="chat-0", url="http://127.0.0.1:1", weight=0.5),)),)
STATE = DesiredState(version=0, models=MODELS, pools=POOLS)


def with_replicas(count: int) -> DesiredState:
    replicas = tuple(Replica(id=f"chat-{number}", url=f"http://127.0.0.1:{number}") for number in range(1, count + 1))
    return DesiredState(version=0, models=MODELS, pools=(Pool(name="chat", driver="embedded", replicas=replicas),))


@pytest.fixture
async def store_at(fresh_postgres_url: str) -> AsyncIterator[Callable[..., Any]]:
    """Starts stores on the test's database, or another, with settings changed by name; stops them after the test."""
    running: list[DesiredStateStore] = []

    async def start(
        on_change: Callable[[DesiredState], None] = lambda _state: None, url: str = fresh_postgres_url, **changes: Any
    ) -> DesiredStateStore:
        config = msgspec.structs.replace(DesiredConfig(), **changes)
        store = DesiredStateStore(url, config, on_change=on_change)
        running.append(store)
        await store.start()
        return store

    yield start
    for store in running:
        await store.stop()


@pytest.fixture
async def connection(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """SQL on the test's database."""
    connection = await connect(fresh_postgres_url)
    yield connection
    await connection.close()


async def test_seeding_writes_a_version_only_when_it_differs(store_at: Callable[..., Any]) -> None:
    seen: list[DesiredState] = []
    store = await store_at(seen.append)
    assert store.current == DesiredState(version=0)
    assert await seed(store, MODELS, POOLS) == 1
    assert await seed(store, MODELS, POOLS) == 1
    assert store.current == DesiredState(version=1, models=MODELS, pools=POOLS)
    changed = with_replicas(3)
    assert await seed(store, changed.models, changed.pools) == 2
    assert await seed(store, MODELS, POOLS) == 3  # back to what was first: different from the newest
    assert [state.version for state in seen] == [1, 2, 3]


async def test_stopping_does_not_wait_when_something_is_announced_in_the_same_moment(
    store_at: Callable[..., Any],
) -> None:
    for _ in range(5):
        store = await store_at()
        await asyncio.sleep(0)  # it follows now
        store._announced.set()
        async with asyncio.timeout(GUARD_S):
            await store.stop()


async def test_gateways_that_start_together_seed_one_version(
    store_at: Callable[..., Any], connection: asyncpg.Connection[Any]
) -> None:
    stores = [await store_at() for _ in range(4)]
    assert await asyncio.gather(*(seed(store, MODELS, POOLS) for store in stores)) == [1, 1, 1, 1]
    assert await connection.fetchval("SELECT count(*) FROM gateway.desired_states") == 1


async def test_writers_at_once_get_numbers_of_their_own(store_at: Callable[..., Any]) -> None:
    stores = [await store_at() for _ in range(3)]
    puts = (
        put(store, with_replicas(3 * number + each + 1)) for number, store in enumerate(stores) for each in range(3)
    )
    versions = await asyncio.gather(*puts)
    assert sorted(versions) == list(range(1, 10))


async def test_a_new_version_is_announced_to_every_gateway(store_at: Callable[..., Any]) -> None:
    """Without polling: it is set to an hour."""
    seen: list[int] = []
    writer = await store_at()
    reader = await store_at(lambda state: seen.append(state.version), poll_s=3_600)
    for count in (1, 2, 3):
        await put(writer, with_replicas(count))
        await eventually(lambda count=count: reader.current.version == count)  # type: ignore[misc]
        assert reader.current.pools == with_replicas(count).pools
    assert seen == [1, 2, 3]


async def test_polling_finds_a_version_whose_announcement_was_lost(
    store_at: Callable[..., Any], fresh_postgres_url: str, connection: asyncpg.Connection[Any]
) -> None:
    writer = await store_at()
    reader = await store_at(poll_s=0.05)
    owner = await connect(as_owner(fresh_postgres_url))
    await owner.execute("ALTER TABLE gateway.desired_states DISABLE TRIGGER ALL")
    await owner.close()
    await put(writer, STATE)
    await eventually(lambda: reader.current.version == 1)


async def test_a_restarted_gateway_takes_up_the_newest(store_at: Callable[..., Any]) -> None:
    first = await store_at()
    await put(first, STATE)
    await put(first, with_replicas(2))
    await first.stop()
    second = await store_at()
    assert second.current == msgspec.structs.replace(with_replicas(2), version=2)


async def test_the_last_known_state_survives_the_database(store_at: Callable[..., Any], wire: Wire) -> None:
    writer = await store_at()
    reader = await store_at(url=wire.url, poll_s=0.05, timeout_s=0.3)
    await put(writer, STATE)
    await eventually(lambda: reader.current.version == 1)
    await wire.cut()
    await put(writer, with_replicas(2))
    with pytest.raises(ConfigError, match="the desired state could not be written"):
        await put(reader, STATE)
    assert reader.current.version == 1
    await wire.connect()
    await eventually(lambda: reader.current.version == 2)


async def test_a_database_that_says_nothing_is_named_in_the_log_with_what_happens_next(
    store_at: Callable[..., Any], wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    await put(await store_at(), STATE)
    reader = await store_at(url=wire.url, poll_s=0.05, timeout_s=0.3)
    await eventually(lambda: reader.current.version == 1)
    wire.hold()
    said = "stays at version 1: the newest cannot be read (TimeoutError: no answer within 0.3 s); tried again every"
    await eventually(lambda: said in caplog.text)
    wire.flowing.set()
    await eventually(lambda: not reader._problem)


async def test_a_state_that_contradicts_itself_is_not_written(store_at: Callable[..., Any]) -> None:
    store = await store_at()
    with pytest.raises(ConfigError, match="no pool named 'chat'"):
        await put(store, DesiredState(version=0, models=MODELS))
    with pytest.raises(ConfigError, match="used twice"):
        await seed(store, MODELS, POOLS * 2)
    assert store.current.version == 0


async def test_a_row_of_a_newer_release_is_neither_adopted_nor_overwritten(
    store_at: Callable[..., Any], connection: asyncpg.Connection[Any]
) -> None:
    store = await store_at(poll_s=0.05)
    await seed(store, MODELS, POOLS)
    await connection.execute(
        "INSERT INTO gateway.desired_states SELECT 2, document || '{\"teleport\": true}' FROM gateway.desired_states"
    )
    with pytest.raises(ConfigError, match=r"version 2: .*teleport.* newer release"):
        await seed(store, MODELS, POOLS)
    await eventually(lambda: "teleport" in store._problem)
    assert store.current.version == 1
    with pytest.raises(ConfigError, match=r"version 2: .*teleport.* newer release"):
        await put(store, with_replicas(2))
    assert store.current.version == 1


async def test_a_listener_that_fails_does_not_end_the_following(store_at: Callable[..., Any]) -> None:
    def fail(_state: DesiredState) -> None:
        raise RuntimeError("defect")

    writer = await store_at()
    reader = await store_at(fail)
    for version in (1, 2):
        await put(writer, with_replicas(version))
        await eventually(lambda version=version: reader.current.version == version)  # type: ignore[misc]


async def test_stop_leaves_no_task(store_at: Callable[..., Any]) -> None:
    before = asyncio.all_tasks()
    store = await store_at()
    await put(store, STATE)
    async with asyncio.timeout(GUARD_S):
        await store.stop()
        await store.stop()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before
    with pytest.raises(ConfigError, match="not started"):
        await put(store, STATE)
