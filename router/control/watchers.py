"""Hands decisions to whoever watches them, without ever waiting for one who reads slowly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from router.core.record import Record

QUEUE_LENGTH = 1_000
"""Decisions kept for one watcher; beyond it the newest are missed, and counted."""


class Watchers:
    """All watchers of one router. Use from its event loop."""

    def __init__(self) -> None:
        self._watching: set[_Watcher] = set()

    def __len__(self) -> int:
        return len(self._watching)

    def decided(self, record: Record) -> None:
        """Tell everybody of a decision."""
        for watcher in self._watching:
            watcher.offer(record)

    async def watch(self) -> AsyncIterator[tuple[Record, int]]:
        """Decisions from now on, each with how many were missed before it."""
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
