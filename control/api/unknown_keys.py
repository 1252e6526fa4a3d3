"""Admin keys that the database did not know a moment ago: asked again, they cost it nothing."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

MAX = 10_000
KEPT_S = 10.0
"""Keys are random, so an unknown one is not created later; those restored from a backup open after this time."""


class UnknownKeys:
    """Unknown keys in stored form, the newest `MAX`, each for `KEPT_S`. now: monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until: OrderedDict[bytes, float] = OrderedDict()  # the oldest first: all are kept equally long

    def __contains__(self, key_hash: bytes) -> bool:
        return self._until.get(key_hash, 0.0) > self._now()

    def __len__(self) -> int:
        return len(self._until)

    def add(self, key_hash: bytes) -> None:
        """The database was asked and does not know it."""
        self._until.pop(key_hash, None)
        if len(self._until) >= MAX:
            self._until.popitem(last=False)
        self._until[key_hash] = self._now() + KEPT_S
