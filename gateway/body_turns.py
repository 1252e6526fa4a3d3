"""Large bodies of one organization are decoded one after the other, and the event loop is the others' as long again.

Decoding keeps the loop for up to some ten milliseconds. Without turns, a tenant with many connections puts as many of
these in front of everybody's next token.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable
from typing import TypeVar

LARGE_BYTES = 65_536
"""A smaller body takes less than a millisecond and waits for nobody."""
DecodedT = TypeVar("DecodedT")


class BodyTurns:
    """The turns of one process."""

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def decode(self, organization_id: str, body: bytes, decode: Callable[[bytes], DecodedT]) -> DecodedT:
        """What `decode` makes of the body, in its turn; raises what it raises."""
        if len(body) < LARGE_BYTES:
            return decode(body)
        lock = self._locks.get(organization_id)
        if lock is None:
            lock = self._locks[organization_id] = asyncio.Lock()
        async with lock:
            began_s = time.perf_counter()
            try:
                return decode(body)
            finally:
                await asyncio.sleep(time.perf_counter() - began_s)
