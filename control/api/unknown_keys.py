"""Remembers admin keys that the database did not know, so that repeated requests with them need no query."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

MAX = 10_000
KEPT_S = 10.0
"""Keys are random, so an unknown one is not created later. A key from a backup becomes valid after this time."""


class UnknownKeys:
    """Hashes of the newest `MAX` unknown keys, each for `KEPT_S`. now: monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until: OrderedDict[bytes, float] = OrderedDict()  # oldest first, as all are kept equally long

    def __contains__(self, key_hash: bytes) -> bool:
        return self._until.get(key_hash, 0.0) > self._now()

    def __len__(self) -> int:
        return len(self._until)

    def add(self, key_hash: bytes) -> None:
        """Remember a key that the database does not know."""
        self._until.pop(key_hash, None)
        if len(self._until) >= MAX:
            self._until.popitem(last=False)
        self._until[key_hash] = self._now() + KEPT_S
