"""Who runs next in a server with so many places and so much memory: the highest priority first, then who came first."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import msgspec


class _Waiting(msgspec.Struct, eq=False):
    before: float
    """Its priority, negated."""
    number: int
    tokens: int
    turn: asyncio.Future[None]


class WaitingQueue:
    """places: requests that run at a time. tokens: of memory, all of which a request has from its beginning on."""

    def __init__(self, places: int, tokens: int) -> None:
        self.running = 0
        self._places = places
        self._free = tokens
        self._numbers = itertools.count()
        self._waiting: list[_Waiting] = []

    @property
    def waiting(self) -> int:
        """Requests that have no place yet."""
        return len(self._waiting)

    @contextlib.asynccontextmanager
    async def place(self, priority: float, tokens: int, leaving: asyncio.Task[None]) -> AsyncIterator[bool]:
        """A place from its turn on; False where the client has left before.

        leaving: done once the server has seen that its client is gone.
        """
        ours = _Waiting(-priority, next(self._numbers), tokens, asyncio.get_running_loop().create_future())
        self._waiting.append(ours)
        self._admit()
        await asyncio.wait({ours.turn, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not ours.turn.done():
            self._waiting.remove(ours)
            self._admit()
            yield False
            return
        try:
            yield True
        finally:
            self.running -= 1
            self._free += tokens
            self._admit()

    def _admit(self) -> None:
        """The first is never passed by one that needs less."""
        while self._waiting and self.running < self._places:
            first = min(self._waiting, key=lambda one: (one.before, one.number))
            if first.tokens > self._free:
                return
            self._waiting.remove(first)
            self.running += 1
            self._free -= first.tokens
            first.turn.set_result(None)
