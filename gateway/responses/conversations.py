"""Stores conversations in PostgreSQL: items that responses begin with and add to. Only keys of their project find them.

A conversation grows in the transaction that stores its response, or not at all. Its size is bounded, and so is each
organization's room: the least recently used conversations make room for new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import asyncpg

from contracts.errors import BodyTooLarge, NotFound
from contracts.generation import Caller
from contracts.misfit import shortened
from gateway.responses.bounds import MAX_HISTORY_BYTES, make_room
from gateway.responses.reached import StorePool, owner_of

MAX_CONVERSATIONS, MAX_ITEMS = 10_000, 10_000
"""Limits of one organization's conversations, and of one conversation's items."""
_OWN = "organization_id = $1 AND project_id = $2 AND id = $3"
CREATE = "INSERT INTO gateway.conversations (organization_id, project_id, id, metadata) VALUES ($1, $2, $3, $4)"
MAKE_ROOM = make_room("gateway.conversations", "used_at", MAX_CONVERSATIONS, "id = $2")
_COLUMNS = "id, extract(epoch FROM created_at)::bigint AS created_at, metadata"
GET = f"SELECT {_COLUMNS} FROM gateway.conversations WHERE {_OWN}"  # noqa: S608
CHANGE = f"UPDATE gateway.conversations SET metadata = $4, used_at = now() WHERE {_OWN} RETURNING {_COLUMNS}"  # noqa: S608
DELETE = f"DELETE FROM gateway.conversations WHERE {_OWN} RETURNING id"  # noqa: S608
# the row's lock serializes transactions that grow it at once
RESIZE = f"""
UPDATE gateway.conversations SET used_at = now(), items = items + $4, size_bytes = size_bytes + $5
 WHERE {_OWN} RETURNING items, size_bytes
"""  # noqa: S608
LOCK = f"SELECT FROM gateway.conversations WHERE {_OWN} FOR UPDATE"
ADD = """
INSERT INTO gateway.conversation_items (conversation_id, id, item)
SELECT $1, * FROM unnest($2::text[], $3::bytea[]) ON CONFLICT DO NOTHING RETURNING length(item) AS size_bytes
"""
ITEMS = f"""
SELECT item.id, item.item
  FROM (SELECT FROM gateway.conversations WHERE {_OWN}) AS owned
  LEFT JOIN gateway.conversation_items AS item ON item.conversation_id = $3
 ORDER BY item.position
"""  # noqa: S608
REMOVE = """
DELETE FROM gateway.conversation_items WHERE conversation_id = $1 AND id = $2 RETURNING length(item) AS size_bytes
"""


class Conversation(NamedTuple):
    """A conversation without its items. created_at: Unix time in seconds. metadata: JSON."""

    id: str
    created_at: int
    metadata: bytes


class StoredItem(NamedTuple):
    """An item with its id. item: JSON."""

    id: str
    item: bytes


class Grown(NamedTuple):
    """Items by which a conversation grows."""

    conversation_id: str
    items: Sequence[StoredItem]


class ConversationStore:
    """The store of one gateway process. Every method raises ResponsesUnavailable if the database is unreachable."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    async def create(self, caller: Caller, metadata: bytes, grown: Grown) -> Conversation:
        """Create a conversation with these items; others make room for it."""
        async with self._pool.reached(caller.organization_id) as connection, connection.transaction():
            await connection.execute(CREATE, *owner_of(caller), grown.conversation_id, metadata)
            await grow(connection, caller, grown)
            return _conversation(await connection.fetchrow(GET, *owner_of(caller), grown.conversation_id), grown[0])

    async def get(self, caller: Caller, conversation_id: str) -> Conversation:
        """A conversation of the caller's project. Raises NotFound."""
        async with self._pool.reached(caller.organization_id) as connection:
            row = await connection.fetchrow(GET, *owner_of(caller), conversation_id)
        return _conversation(row, conversation_id)

    async def change(self, caller: Caller, conversation_id: str, metadata: bytes) -> Conversation:
        """Replace its metadata. Raises NotFound."""
        async with self._pool.reached(caller.organization_id) as connection:
            row = await connection.fetchrow(CHANGE, *owner_of(caller), conversation_id, metadata)
        return _conversation(row, conversation_id)

    async def delete(self, caller: Caller, conversation_id: str) -> None:
        """Delete it with its items. Raises NotFound."""
        async with self._pool.reached(caller.organization_id) as connection:
            deleted = await connection.fetchval(DELETE, *owner_of(caller), conversation_id)
        if deleted is None:
            raise _unknown(conversation_id)

    async def items(self, caller: Caller, conversation_id: str) -> list[StoredItem]:
        """Its items, oldest first. Raises NotFound."""
        async with self._pool.reached(caller.organization_id) as connection:
            rows = await connection.fetch(ITEMS, *owner_of(caller), conversation_id)
        if not rows:
            raise _unknown(conversation_id)
        return [StoredItem(row["id"], row["item"]) for row in rows if row["id"] is not None]

    async def add(self, caller: Caller, grown: Grown) -> None:
        """Add items. Raises NotFound, and BodyTooLarge for more than a conversation holds."""
        async with self._pool.reached(caller.organization_id) as connection, connection.transaction():
            await grow(connection, caller, grown)

    async def remove(self, caller: Caller, conversation_id: str, item_id: str) -> Conversation:
        """Remove an item. Raises NotFound for an unknown conversation or item."""
        async with self._pool.reached(caller.organization_id) as connection, connection.transaction():
            await connection.execute(LOCK, *owner_of(caller), conversation_id)
            conversation = _conversation(
                await connection.fetchrow(GET, *owner_of(caller), conversation_id), conversation_id
            )
            size_bytes = await connection.fetchval(REMOVE, conversation_id, item_id)
            if size_bytes is None:
                raise no_item(item_id)
            await connection.execute(RESIZE, *owner_of(caller), conversation_id, -1, -size_bytes)
        return conversation


async def grow(connection: asyncpg.Connection[Any], caller: Caller, grown: Grown) -> None:
    """Add items to a conversation within a transaction. Items that it has are left as they are, and others make room.
    Raises NotFound, and BodyTooLarge for more than a conversation holds."""
    key = *owner_of(caller), grown.conversation_id
    if await connection.fetchrow(LOCK, *key) is None:
        raise _unknown(grown.conversation_id)
    columns = [item.id for item in grown.items], [item.item for item in grown.items]
    added = await connection.fetch(ADD, grown.conversation_id, *columns)
    size_bytes = sum(row["size_bytes"] for row in added)
    row = await connection.fetchrow(RESIZE, *key, len(added), size_bytes)
    if row is None or row["items"] > MAX_ITEMS or row["size_bytes"] > MAX_HISTORY_BYTES:
        raise BodyTooLarge(
            f"With these items, the conversation would have more than {MAX_ITEMS} items or {MAX_HISTORY_BYTES} "
            "bytes, which is the limit. Delete items, or create a new conversation.",
            param="conversation",
        )
    await connection.execute(MAKE_ROOM, caller.organization_id, grown.conversation_id)


def no_item(item_id: str) -> NotFound:
    """The error for an item that a conversation lacks."""
    return NotFound(f"There is no item {shortened(repr(item_id))} in this conversation.", param="item_id")


def _conversation(row: asyncpg.Record | None, conversation_id: str) -> Conversation:
    if row is None:
        raise _unknown(conversation_id)
    return Conversation(row["id"], row["created_at"], row["metadata"])


def _unknown(conversation_id: str) -> NotFound:
    return NotFound(
        f"There is no conversation {shortened(repr(conversation_id))}: it was deleted (by a request, after its "
        "retention or to make room), or belongs to another project. Create a new conversation.",
        param="conversation",
    )
