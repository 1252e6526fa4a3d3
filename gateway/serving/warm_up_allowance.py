"""Limits the unbilled prefetch of a key to what its requests were billed for.

Otherwise, a client that requests gaps with cached prompts would never pay in full for a computed prompt: each prefetch
is free, and the next request finds its prompt cached.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from contracts.usage import Usage

CACHED_SHARE = 0.1
"""Share charged for a cached token. Usual prices discount it as much, and the engine's cost is far lower still."""
HALF_LIFE_S = 60.0
"""Half-life of an allowance: payments count for the current typing and are not saved up."""
MAX_KEYS = 20_000
"""Limit of keys; the least recently used are dropped, with their allowances."""


class WarmUpAllowance:
    """Allowances of one gateway, by key id, in prompt tokens. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """A key's remaining allowance, and the time of that figure."""

    def __len__(self) -> int:
        return len(self._left)

    def paid(self, key_id: str, usage: Usage) -> None:
        """Add a billed request."""
        self._add(key_id, usage.prompt_tokens - (1 - CACHED_SHARE) * usage.cached_tokens)

    def take(self, key_id: str, tokens: int) -> bool:
        """Reserve a prompt's upper bound, if the key has as much left. The caller must call `give_back`."""
        if self._now(key_id) < tokens:
            return False
        self._add(key_id, -tokens)
        return True

    def give_back(self, key_id: str, taken: int, usage: Usage) -> None:
        """Settle a reservation with the computed tokens, which may be more than were reserved."""
        self._add(key_id, taken - (usage.prompt_tokens - usage.cached_tokens))

    def _add(self, key_id: str, tokens: float) -> None:
        self._left[key_id] = self._now(key_id) + tokens, self._clock()
        self._left.move_to_end(key_id)
        if len(self._left) > MAX_KEYS:
            self._left.popitem(last=False)

    def _now(self, key_id: str) -> float:
        left, since_s = self._left.get(key_id, (0.0, 0.0))
        # an overdraft does not decay with time
        return left if left <= 0 else left * 0.5 ** ((self._clock() - since_s) / HALF_LIFE_S)
