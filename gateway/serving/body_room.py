"""Limits the bytes of one organization's request bodies in a gateway's memory, until the limiter has reserved them.

A body of known length gets all of its room before the gateway reads any of it, so that no half-read body waits. A body
without a length takes room as it arrives. The oldest body always proceeds, so that growing bodies never deadlock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Body:
    """One body and its room."""

    __slots__ = ("_room", "organization_id", "size_bytes")

    def __init__(self, room: BodyRoom, organization_id: str) -> None:
        self._room = room
        self.organization_id = organization_id
        self.size_bytes = 0

    async def hold(self, size_bytes: int) -> None:
        """Return when there is room for its first `size_bytes`."""
        if size_bytes > self.size_bytes:
            await self._room.take(self, size_bytes - self.size_bytes)


class BodyRoom:
    """The room of every organization. limit_bytes: the limit of each; a single body may exceed it."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._inside: dict[str, dict[Body, None]] = {}
        """Bodies with room by organization, oldest first."""
        self._taken_bytes: dict[str, int] = {}
        self._waiting: dict[str, dict[asyncio.Future[None], tuple[Body, int]]] = {}

    @contextlib.asynccontextmanager
    async def of(self, organization_id: str, size_bytes: int = 0) -> AsyncIterator[Body]:
        """Create a body with room for `size_bytes`, in order of arrival within the organization. The end of the block
        frees all of its room."""
        body = Body(self, organization_id)
        try:
            await body.hold(size_bytes)
            yield body
        finally:
            self._leave(body)

    async def take(self, body: Body, size_bytes: int) -> None:
        """See `Body.hold`. size_bytes: additional bytes."""
        queue = self._waiting.get(body.organization_id)
        if (not queue and self._fits(body, size_bytes)) or self._is_oldest(body):
            self._let_in(body, size_bytes)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(body.organization_id, {})[turn] = body, size_bytes
        try:
            await turn
        finally:
            self._waiting.get(body.organization_id, {}).pop(turn, None)

    def _leave(self, body: Body) -> None:
        organization_id = body.organization_id
        inside = self._inside.get(organization_id, {})
        if body in inside:
            del inside[body]
            self._taken_bytes[organization_id] -= body.size_bytes
            if not inside:
                del self._inside[organization_id], self._taken_bytes[organization_id]
        queue = self._waiting.get(organization_id, {})
        for turn, (waiting, size_bytes) in list(queue.items()):
            oldest = self._is_oldest(waiting)
            if not oldest and not (turn is next(iter(queue)) and self._fits(waiting, size_bytes)):
                continue
            del queue[turn]
            if not turn.done():
                self._let_in(waiting, size_bytes)
                turn.set_result(None)
        if not queue:
            self._waiting.pop(organization_id, None)

    def _let_in(self, body: Body, size_bytes: int) -> None:
        organization_id = body.organization_id
        body.size_bytes += size_bytes
        self._inside.setdefault(organization_id, {})[body] = None
        self._taken_bytes[organization_id] = self._taken_bytes.get(organization_id, 0) + size_bytes

    def _is_oldest(self, body: Body) -> bool:
        return body is next(iter(self._inside.get(body.organization_id, ())), None)

    def _fits(self, body: Body, size_bytes: int) -> bool:
        taken_bytes = self._taken_bytes.get(body.organization_id, 0)
        return not taken_bytes or taken_bytes + size_bytes <= self._limit_bytes
