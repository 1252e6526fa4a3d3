"""Orders the hashing of passwords, so that clients that guess passwords delay no user's sign-in. One per gateway.

Two groups take turns: returning browsers and strangers. In each, the network or session with the fewest unsuccessful
hashes is next. A hash occupies a core for a tenth of a second, so strangers who try passwords always cause a queue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from contracts.errors import ServiceError
from control.api.fair_queue import FairQueue, QueueKey
from control.sessions.token import SessionToken

MAX_QUEUED = 512
"""Limit of each group: about a minute of hashes."""
RECENT_S = 86_400.0
"""How long a network counts as returning after a sign-in, and an unsuccessful hash counts."""
MAX_REMEMBERED = 10_000
RETURNING, STRANGERS = "returning", "strangers"
ValueT = TypeVar("ValueT")


class QueueFull(ServiceError):
    """Too many attempts are queued; the password was not checked."""

    def __init__(self) -> None:
        super().__init__("Too many people are signing in at this moment; try again.", retry_after_s=2)


class HashQueue:
    """Grants the threads that hash."""

    def __init__(self, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._threads = threads
        self._clock = clock
        self._running = 0
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()
        self._succeeded: dict[str, float] = {}
        """Time of the last sign-in by network, the oldest first."""
        self._failed: dict[str, tuple[int, float]] = {}
        """Unsuccessful hashes by network or session, and the time of the last; the oldest first."""

    def key_of(self, token: SessionToken | None, network: str) -> QueueKey:
        """The queue key of an attempt. token: the browser's, whose session may have ended."""
        if token is not None:
            return QueueKey(RETURNING, token.hash.hex())
        is_recent = self._clock() - self._succeeded.get(network, -RECENT_S) < RECENT_S
        return QueueKey(RETURNING if is_recent else STRANGERS, network)

    def succeeded(self, key: QueueKey, network: str) -> None:
        """Count a sign-in from a network. key: the attempt's."""
        self._failed.pop(key.member, None)
        _put(self._succeeded, network, self._clock())

    async def acquire(self, key: QueueKey) -> None:
        """Wait for a thread; the caller then calls `release`. Raises QueueFull."""
        if self._running < self._threads:
            self._running += 1
        else:
            await self._wait(key)
        _put(self._failed, key.member, (self._failures(key) + 1, self._clock()))

    def release(self) -> None:
        """Grant the thread to the next attempt."""
        self._running -= 1
        while self._running < self._threads and (following := self._queue.take(had=self._failures)) is not None:
            _, granted = following
            if not granted.done():
                self._running += 1
                granted.set_result(None)

    def close(self) -> None:
        """Refuse all queued attempts."""
        while (following := self._queue.take()) is not None:
            _, granted = following
            if not granted.done():
                granted.set_exception(ServiceError("This instance is shutting down; try again.", retry_after_s=1))

    async def _wait(self, key: QueueKey) -> None:
        self._make_room(key)
        granted = asyncio.get_running_loop().create_future()
        self._queue.add(key, granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and granted.exception() is None:  # granted at the same moment
                self.release()
            else:
                self._queue.remove(key, granted)
            raise

    def _failures(self, key: QueueKey) -> int:
        count, last_s = self._failed.get(key.member, (0, -RECENT_S))
        return count if self._clock() - last_s < RECENT_S else 0

    def _make_room(self, key: QueueKey) -> None:
        """In a full group, refuse the newest attempt of the member with the most attempts, or of those the most
        failures. Raises QueueFull if that is this member."""
        if self._queue.size_of_group(key.group) < MAX_QUEUED:
            return
        newest = self._queue.newest_of_largest(key.group, self._failures)
        own = self._queue.size_of(key) + 1, self._failures(key)
        if newest is None or (self._queue.size_of(newest[0]), self._failures(newest[0])) <= own:
            raise QueueFull
        self._queue.remove(*newest)
        if not newest[1].done():
            newest[1].set_exception(QueueFull())


def _put(remembered: dict[str, ValueT], name: str, value: ValueT) -> None:
    """Store a value as the newest, and drop the oldest beyond the limit."""
    remembered.pop(name, None)
    remembered[name] = value
    if len(remembered) > MAX_REMEMBERED:
        del remembered[next(iter(remembered))]
