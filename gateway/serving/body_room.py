"""How many bytes of bodies one organization may have in a gateway's memory before anything is reserved for them.

A body whose length is known has room for all of it before any of it is read, so that nobody holds half of one while
waiting for the rest. One without a length takes room as it comes. The oldest body always goes on, so that several that
grow never wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Body:
    """One body, and the room it has."""

    __slots__ = ("_room", "organization_id", "size_bytes")

    def __init__(self, room: BodyRoom, organization_id: str) -> None:
        self._room = room
        self.organization_id = organization_id
        self.size_bytes = 0

    async def hold(self, size_bytes: int) -> None:
        """Return when there is room for so many bytes of it."""
        if size_bytes > self.size_bytes:
            await self._room.take(self, size_bytes - self.size_bytes)


class BodyRoom:
    """The room of every organization. limit_bytes: of each; one body is always let in, however large."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._inside: dict[str, dict[Body, None]] = {}
        """Those with room, oldest first."""
        self._taken_bytes: dict[str, int] = {}
        self._waiting: dict[str, dict[asyncio.Future[None], tuple[Body, int]]] = {}

    @contextlib.asynccontextmanager
    async def of(self, organization_id: str, size_bytes: int = 0) -> AsyncIterator[Body]:
        """A body that has so much room at first: waits for it, first come first served within the organization. All of
        its room is free again at the end of the block."""
        body = Body(self, organization_id)
        try:
            await body.hold(size_bytes)
            yield body
        finally:
            self._leave(body)

    async def take(self, body: Body, size_bytes: int) -> None:
        """As `Body.hold`. size_bytes: beyond what it has."""
        line = self._waiting.get(body.organization_id)
        if (not line and self._fits(body, size_bytes)) or self._is_oldest(body):
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
        line = self._waiting.get(organization_id, {})
        for turn, (waiting, size_bytes) in list(line.items()):
            oldest = self._is_oldest(waiting)
            if not oldest and not (turn is next(iter(line)) and self._fits(waiting, size_bytes)):
                continue
            del line[turn]
            if not turn.done():
                self._let_in(waiting, size_bytes)
                turn.set_result(None)
        if not line:
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
