"""How many bytes of bodies one organization may have in a gateway's memory before anything is reserved for them.

Room is taken for a whole body before any of it is read, so that nobody holds half of one while waiting for the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator


class BodyRoom:
    """The room of every organization. limit_bytes: of each; one body is always let in."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._taken: dict[str, int] = {}
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    @contextlib.asynccontextmanager
    async def of(self, organization_id: str, size_bytes: int) -> AsyncIterator[None]:
        """Wait for room, first come first served within the organization; it is free again at the end of the block."""
        await self._take(organization_id, size_bytes)
        try:
            yield
        finally:
            self._give_back(organization_id, size_bytes)

    async def _take(self, organization_id: str, size_bytes: int) -> None:
        line = self._waiting.get(organization_id)
        if line is None and self._fits(organization_id, size_bytes):
            self._taken[organization_id] = self._taken.get(organization_id, 0) + size_bytes
            return
        line = self._waiting.setdefault(organization_id, deque())
        turn = asyncio.get_running_loop().create_future()
        line.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(organization_id, size_bytes)  # it was let in at the moment it left
            else:
                self._admit(organization_id)
            raise

    def _give_back(self, organization_id: str, size_bytes: int) -> None:
        left_bytes = self._taken[organization_id] - size_bytes
        if left_bytes:
            self._taken[organization_id] = left_bytes
        else:
            del self._taken[organization_id]
        self._admit(organization_id)

    def _admit(self, organization_id: str) -> None:
        """Let in whoever is next, while there is room. Those that left meanwhile are passed over."""
        line = self._waiting.get(organization_id)
        while line:
            size_bytes, turn = line[0]
            if not turn.done():
                if not self._fits(organization_id, size_bytes):
                    return
                self._taken[organization_id] = self._taken.get(organization_id, 0) + size_bytes
                turn.set_result(None)
            line.popleft()
        self._waiting.pop(organization_id, None)

    def _fits(self, organization_id: str, size_bytes: int) -> bool:
        taken_bytes = self._taken.get(organization_id, 0)
        return not taken_bytes or taken_bytes + size_bytes <= self._limit_bytes
