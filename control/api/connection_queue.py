"""Shares the admin API's database connections among organizations. One queue per gateway process.

An organization has half of the connections at most, and the last one is for the operating organization, so that no
tenant delays another tenant or an operator. Its members and service accounts take turns for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Protocol
from uuid import UUID

from contracts.errors import RateLimited, ServiceError, SlipstreamError
from control.api.fair_queue import FairQueue, QueueKey

OPERATORS = QueueKey("operators")
"""The operating organization, and the gateway's own queries."""
STRANGERS = "strangers"
"""The group of all callers that the gateway has not identified yet; its members are networks."""
MAX_CALLERS = 10_000
BUSY_S = 1.0


class Caller(Protocol):
    """A member or a service account."""

    @property
    def id(self) -> UUID:
        """The caller's own id."""

    @property
    def organization_id(self) -> UUID:
        """The caller's organization."""

    @property
    def operator(self) -> bool:
        """The key belongs to the operating organization."""


def key_of(caller: Caller) -> QueueKey:
    """The queue key of an identified caller. The callers of an organization take turns, so that a program with one of
    its keys does not keep its owner from revoking that key."""
    group = OPERATORS.group if caller.operator else str(caller.organization_id)
    return QueueKey(group, str(caller.id))


def stranger(network: str) -> QueueKey:
    """The queue key of a caller of whom only the network is known."""
    return QueueKey(STRANGERS, network)


class CallerKeys:
    """Remembers the queue keys of admin keys and sessions, so that looking them up does not queue among strangers.

    It grants nothing: the database is asked at every request.
    """

    def __init__(self) -> None:
        self._keys: dict[bytes, QueueKey] = {}
        """By hash of the secret, the least recently used first."""

    def find(self, secret_hash: bytes, network: str) -> QueueKey:
        """The remembered queue key, or a stranger's."""
        key = self._keys.pop(secret_hash, None)
        if key is None:
            return stranger(network)
        self._keys[secret_hash] = key
        return key

    def learn(self, secret_hash: bytes, caller: Caller) -> None:
        """Remember the caller of a secret."""
        self._keys.pop(secret_hash, None)
        self._keys[secret_hash] = key_of(caller)
        if len(self._keys) > MAX_CALLERS:
            del self._keys[next(iter(self._keys))]


class ConnectionQueue:
    """Grants the connections of a pool, groups in turn."""

    def __init__(self, connections: int) -> None:
        """connections: size of the pool."""
        self._all = connections
        self._each = max(1, connections // 2)
        self._others = max(1, connections - 1)
        self._granted: Counter[str] = Counter()
        """Connections by group."""
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()

    def refusal(self, key: QueueKey) -> SlipstreamError:
        """The error for a request whose time passed in the queue: its organization is the cause, or others are."""
        if key.group in (OPERATORS.group, STRANGERS) or self._granted[key.group] < self._each:
            return ServiceError("The admin API is busy; try again.", retry_after_s=BUSY_S)
        return RateLimited(
            f"Your organization has {self._each} requests to the admin API under way at this gateway, which is the "
            "limit, and too many more are queued. Send fewer at a time.",
            retry_after_s=BUSY_S,
        )

    @contextlib.asynccontextmanager
    async def connection(self, key: QueueKey) -> AsyncIterator[None]:
        """Hold one of the connections for the block, after its turn has come."""
        if self._may(key.group):
            self._granted[key.group] += 1
        else:
            await self._wait(key)
        try:
            yield
        finally:
            self._release(key.group)

    async def _wait(self, key: QueueKey) -> None:
        granted = asyncio.get_running_loop().create_future()
        self._queue.add(key, granted)
        try:
            await granted
        except asyncio.CancelledError:
            if not self._queue.remove(key, granted):  # granted at the same moment
                self._release(key.group)
            raise

    def _may(self, group: str) -> bool:
        granted = self._granted.total()
        if granted >= self._all or self._granted[group] >= self._each:
            return False
        return group == OPERATORS.group or granted - self._granted[OPERATORS.group] < self._others

    def _release(self, group: str) -> None:
        self._granted[group] -= 1
        if not self._granted[group]:
            del self._granted[group]
        while (following := self._queue.take(self._may)) is not None:
            key, granted = following
            self._granted[key.group] += 1
            if not granted.done():
                granted.set_result(None)
