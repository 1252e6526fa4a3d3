"""The token by which the worker requests a batch's lines: made of the key's present hash, renewed in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from gateway.auth.delegation import VALID_S, delegated


class LineToken:
    """key_hash: reads the present hash of the key. pepper: the deployment's."""

    def __init__(self, key_hash: Callable[[], Awaitable[bytes]], pepper: bytes) -> None:
        self._key_hash = key_hash
        self._pepper = pepper
        self._lock = asyncio.Lock()
        self._token = ""
        self._until_s = 0.0

    async def current(self) -> str:
        """The token for the next request; of several that need another one, one reads the hash."""
        async with self._lock:
            if time.monotonic() >= self._until_s:
                self._token = delegated(await self._key_hash(), self._pepper, time.time())
                self._until_s = time.monotonic() + VALID_S / 2
            return self._token

    def refused(self) -> None:
        """The gateway refused it: the next request gets another one."""
        self._until_s = 0.0
