"""Stored responses in a real PostgreSQL: bounded, of one project, and gone after their retention."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from contracts.errors import BodyTooLarge, InvalidField, NotFound, ResponsesUnavailable
from contracts.generation import Caller
from control.billing.trace_retention import forget_traces
from gateway.responses import conversations
from gateway.responses import store as module
from gateway.responses.bounds import MAX_BYTES, MAX_HISTORY_BYTES
from gateway.responses.conversations import ConversationStore, Grown, StoredItem
from gateway.responses.reached import StorePool
from gateway.responses.store import ResponseStore, Stored
from storage.engine import lazy_pool

ONE = Stored(b"[]", b'{"output":[]}')


async def organization(pool: asyncpg.Pool[Any]) -> Caller:
    made = await pool.fetchval("INSERT INTO gateway.organizations (name) VALUES ('o') RETURNING id")
    return Caller(str(made), str(uuid4()), str(uuid4()))


async def ids(pool: asyncpg.Pool[Any], caller: Caller) -> list[str]:
    query = "SELECT id FROM gateway.responses WHERE organization_id = $1 ORDER BY id"
    return [row["id"] for row in await pool.fetch(query, caller.organization_id)]


async def chain(store: ResponseStore, caller: Caller, length: int) -> list[str]:
    """A conversation of so many responses; their ids, oldest first."""
    names = [f"{caller.project_id}-{number}" for number in range(length)]
    for previous, name in zip([None, *names], names, strict=False):
        await store.keep(caller, name, previous, Stored(b"[1]", name.encode()))
    return names


async def test_a_conversation_is_read_oldest_first_and_whole_or_not_at_all(pool: asyncpg.Pool[Any]) -> None:
    store, caller = ResponseStore(StorePool(pool)), await organization(pool)
    names = await chain(store, caller, 4)
    assert [turn.response.decode() for turn in await store.history(caller, names[2])] == names[:3]
    await store.delete(caller, names[1])
    with pytest.raises(NotFound, match=names[1]):
        await store.history(caller, names[3])
    stranger = Caller(caller.organization_id, str(uuid4()), caller.key_id)
    for attempt in (store.history(stranger, names[0]), store.get(stranger, names[0]), store.delete(stranger, names[0])):
        with pytest.raises(NotFound):
            await attempt
    assert await store.several(stranger, names) == {}
    assert sorted(await store.several(caller, names)) == [names[0], names[2], names[3]]


async def test_an_id_that_no_database_takes_is_the_clients_error(pool: asyncpg.Pool[Any]) -> None:
    """It was reported as a database out of reach, which clients try again."""
    store, held, caller = ResponseStore(StorePool(pool)), ConversationStore(StorePool(pool)), await organization(pool)
    for attempt in (store.get(caller, "a\0"), store.history(caller, "\0"), held.items(caller, "conv_\0")):
        with pytest.raises(InvalidField, match="NUL"):
            await attempt
    await chain(store, caller, 1)


async def test_a_long_conversation_is_refused_in_bounded_time(
    pool: asyncpg.Pool[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HISTORY", module.HISTORY.replace(str(module.MAX_TURNS), "3"))
    monkeypatch.setattr(module, "MAX_TURNS", 3)
    store, caller = ResponseStore(StorePool(pool)), await organization(pool)
    names = await chain(store, caller, 4)
    assert len(await store.history(caller, names[2])) == 3
    with pytest.raises(BodyTooLarge) as refused:
        await store.history(caller, names[3])
    assert refused.value.param == "previous_response_id"
    await pool.execute("UPDATE gateway.responses SET size_bytes = $1", MAX_HISTORY_BYTES + 1)
    with pytest.raises(BodyTooLarge):
        await store.history(caller, names[1])


async def test_an_organizations_room_is_bounded_by_count_and_bytes(
    pool: asyncpg.Pool[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller = module.MAKE_ROOM.replace(str(module.MAX_RESPONSES), "5").replace(str(MAX_BYTES), "100")
    monkeypatch.setattr(module, "MAKE_ROOM", smaller)
    store, caller, other = ResponseStore(StorePool(pool)), await organization(pool), await organization(pool)
    await store.keep(other, "other", None, ONE)
    for number in range(8):
        await store.keep(caller, f"{number}", None, ONE)
    assert await ids(pool, caller) == ["3", "4", "5", "6", "7"]
    await pool.execute("UPDATE gateway.responses SET status = 'queued' WHERE id = '3'")
    await store.keep(caller, "8", None, Stored(b"[]", b"x" * 70))
    assert await ids(pool, caller) == ["3", "7", "8"], "one that the worker has still to run stays"
    await pool.execute("UPDATE gateway.responses SET status = NULL")
    await asyncio.gather(*(store.keep(caller, f"at once {number}", None, ONE) for number in range(20)))
    await store.keep(caller, "last", None, ONE)
    assert len(await ids(pool, caller)) <= 5
    assert await ids(pool, other) == ["other"]


async def test_they_are_gone_after_the_retention_and_with_their_organization(
    pool: asyncpg.Pool[Any], fresh_postgres_url: str
) -> None:
    store, caller, other = ResponseStore(StorePool(pool)), await organization(pool), await organization(pool)
    for name, of in (("old", caller), ("new", caller), ("other", other)):
        await store.keep(of, name, None, ONE)
    await pool.execute("UPDATE gateway.responses SET recorded_at = now() - interval '31 days' WHERE id = 'old'")
    assert await asyncio.to_thread(forget_traces, fresh_postgres_url, 30) == 1
    assert await ids(pool, caller) == ["new"]
    await pool.execute("DELETE FROM gateway.organizations WHERE id = $1", caller.organization_id)
    assert await ids(pool, caller) == []
    assert await ids(pool, other) == ["other"]
    with pytest.raises(ResponsesUnavailable):
        await store.keep(caller, "of nobody", None, ONE)


async def test_a_database_that_is_away_is_an_error_at_once(data_folder: Path) -> None:
    pool = await lazy_pool(f"postgresql://nobody@/none?host={data_folder}", size=1, connect_timeout_s=5)
    store, caller = ResponseStore(StorePool(pool)), Caller(str(uuid4()), str(uuid4()), "k")
    for attempt in (store.keep(caller, "1", None, ONE), store.get(caller, "1"), store.history(caller, "1")):
        with pytest.raises(ResponsesUnavailable) as refused:
            await attempt
        assert refused.value.retry_after_s
    pool.terminate()


def items(*names: str) -> list[StoredItem]:
    return [StoredItem(name, b"{}") for name in names]


async def test_a_conversation_is_bounded_and_grows_with_its_response_or_not_at_all(
    pool: asyncpg.Pool[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "MAX_ITEMS", 3)
    held, store, caller = ConversationStore(StorePool(pool)), ResponseStore(StorePool(pool)), await organization(pool)
    await held.create(caller, b"{}", Grown("c", items("1", "2")))
    await store.keep(caller, "r", None, ONE, Grown("c", items("2", "3")))
    with pytest.raises(BodyTooLarge) as refused:
        await store.keep(caller, "too much", None, ONE, Grown("c", items("4")))
    assert refused.value.param == "conversation"
    assert await ids(pool, caller) == ["r"]
    assert [item.id for item in await held.items(caller, "c")] == ["1", "2", "3"], "an item that it has is not doubled"
    await held.remove(caller, "c", "1")
    await held.add(caller, Grown("c", items("4")))
    with pytest.raises(NotFound):
        await store.keep(caller, "of none", None, ONE, Grown("unknown", items("1")))
    assert await ids(pool, caller) == ["r"]


async def test_conversations_make_room_and_are_gone_when_unused(
    pool: asyncpg.Pool[Any], fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller = conversations.MAKE_ROOM.replace(str(conversations.MAX_CONVERSATIONS), "3")
    monkeypatch.setattr(conversations, "MAKE_ROOM", smaller)
    held, caller = ConversationStore(StorePool(pool)), await organization(pool)
    for name in ("1", "2", "3"):
        await held.create(caller, b"{}", Grown(name, items(name)))
    await held.add(caller, Grown("1", items("used")))
    await held.create(caller, b"{}", Grown("4", items("kept")))
    with pytest.raises(NotFound):
        await held.get(caller, "2")
    assert len(await held.items(caller, "1")) == 2
    # fault: a conversation that grew made no room
    await pool.execute("UPDATE gateway.conversations SET size_bytes = 600000000 WHERE id IN ('3', '4')")
    await held.add(caller, Grown("1", items("grown")))
    with pytest.raises(NotFound):
        await held.get(caller, "3")
    assert len(await held.items(caller, "1")) == 3
    assert len(await held.items(caller, "4")) == 1
    await pool.execute("UPDATE gateway.conversations SET used_at = now() - interval '31 days' WHERE id = '1'")
    assert await asyncio.to_thread(forget_traces, fresh_postgres_url, 30) == 1
    assert await pool.fetchval("SELECT count(*) FROM gateway.conversation_items") == 1
