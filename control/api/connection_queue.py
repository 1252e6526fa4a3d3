"""Shares the admin API's database connections among organizations. One queue per gateway process.

An organization may hold half of the connections, and the last one is reserved for the operating organization, so that
no tenant delays another tenant or an operator. The members and service accounts of an organization take turns.
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
        """Whether the caller belongs to the operating organization."""


def key_of(caller: Caller) -> QueueKey:
    """The queue key of an identified caller. The callers of an organization take turns, so that a program with one of
    its keys cannot delay the revocation of that key."""
    group = OPERATORS.group if caller.operator else str(caller.organization_id)
    return QueueKey(group, str(caller.id))


def stranger(network: str) -> QueueKey:
    """The queue key of a caller of whom only the network is known."""
    return QueueKey(STRANGERS, network)


class CallerKeys:
    """Remembers the queue keys of admin keys and sessions, so that looking them up does not queue among strangers.

    It grants no access: every request still queries the database.
    """

    def __init__(self) -> None:
        self._keys: dict[bytes, QueueKey] = {}
        """Queue keys by hash of the secret, least recently used first."""

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
    """Grants the connections of a pool to groups in turn."""

    def __init__(self, connections: int) -> None:
        """connections: size of the pool."""
        self._connections = connections
        self._group_limit = max(1, connections // 2)
        self._tenant_limit = max(1, connections - 1)
        self._granted: Counter[str] = Counter()
        """Number of held connections by group."""
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()

    def refusal(self, key: QueueKey) -> SlipstreamError:
        """The error for a request whose time ran out in the queue, because of its own organization or of others."""
        if key.group in (OPERATORS.group, STRANGERS) or self._granted[key.group] < self._group_limit:
            return ServiceError("The admin API is busy; try again.", retry_after_s=BUSY_S)
        return RateLimited(
            f"Your organization has {self._group_limit} requests to the admin API under way at this gateway, which is "
            "the limit, and too many more are queued. Send fewer at a time.",
            retry_after_s=BUSY_S,
        )

    @contextlib.asynccontextmanager
    async def connection(self, key: QueueKey) -> AsyncIterator[None]:
        """Wait for a connection, and hold it for the block."""
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
        if granted >= self._connections or self._granted[group] >= self._group_limit:
            return False
        return group == OPERATORS.group or granted - self._granted[OPERATORS.group] < self._tenant_limit

    def _release(self, group: str) -> None:
        self._granted[group] -= 1
        if not self._granted[group]:
            del self._granted[group]
        while (following := self._queue.take(self._may)) is not None:
            key, granted = following
            self._granted[key.group] += 1
            if not granted.done():
                granted.set_result(None)
