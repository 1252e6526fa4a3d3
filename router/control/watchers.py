"""Sends decisions to watchers, without ever waiting for a slow reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from router.core.record import Record

QUEUE_LENGTH = 1_000
"""Most decisions that are queued for one watcher; further ones are dropped and counted."""


class Watchers:
    """All watchers of one router, for use on the router's event loop."""

    def __init__(self) -> None:
        self._watching: set[_Watcher] = set()

    def __len__(self) -> int:
        return len(self._watching)

    def decided(self, record: Record) -> None:
        """Send a decision to all watchers."""
        for watcher in self._watching:
            watcher.offer(record)

    async def watch(self) -> AsyncIterator[tuple[Record, int]]:
        """Decisions from now on, each with the number missed before it."""
        watcher = _Watcher()
        self._watching.add(watcher)
        try:
            while True:
                yield await watcher.queue.get()
        finally:
            self._watching.discard(watcher)


class _Watcher:
    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[Record, int]] = asyncio.Queue(QUEUE_LENGTH)
        self._missed = 0

    def offer(self, record: Record) -> None:
        try:
            self.queue.put_nowait((record, self._missed))
        except asyncio.QueueFull:
            self._missed += 1
        else:
            self._missed = 0
