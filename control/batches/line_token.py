"""The token with which the worker sends a batch's lines. It is made of the key's current hash, and renewed in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from gateway.auth.delegation import VALID_S, delegated


class LineToken:
    """key_hash: reads the current hash of the key. pepper: the deployment's."""

    def __init__(self, key_hash: Callable[[], Awaitable[bytes]], pepper: bytes) -> None:
        self._key_hash = key_hash
        self._pepper = pepper
        self._lock = asyncio.Lock()
        self._token = ""
        self._until_s = 0.0

    async def current(self) -> str:
        """The token for the next request. If several requests need a new one, only one of them reads the hash."""
        async with self._lock:
            if time.monotonic() >= self._until_s:
                self._token = delegated(await self._key_hash(), self._pepper, time.time())
                self._until_s = time.monotonic() + VALID_S / 2
            return self._token

    def refused(self) -> None:
        """Discard a token that the gateway refused. The next request gets a new one."""
        self._until_s = 0.0
