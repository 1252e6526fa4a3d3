"""How much may be computed ahead for a key, unbilled: never more than its requests were billed for.

Else whoever asks for gaps whose prompts are cached would have prompts computed that he never pays in full: those ahead,
for nothing, which his next request then finds cached.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from contracts.usage import Usage

CACHED_SHARE = 0.1
"""Of a cached token: it cost its key as much less, by the usual prices, and the engine far less still."""
HALF_LIFE_S = 60.0
"""What was paid is for the typing that goes on now, not to be saved up."""
MOST_KEYS = 20_000
"""Those that were looked at longest ago are forgotten, with what they had left."""


class WarmUpAllowance:
    """One gateway's, by key id, in prompt tokens. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What a key had left, and when."""

    def __len__(self) -> int:
        return len(self._left)

    def paid(self, key_id: str, usage: Usage) -> None:
        """One of its requests was billed."""
        self._add(key_id, usage.prompt_tokens - (1 - CACHED_SHARE) * usage.cached_tokens)

    def take(self, key_id: str, tokens: int) -> bool:
        """Hold back what a prompt may take to compute, where the key has as much left. Whoever takes gives back."""
        if self._now(key_id) < tokens:
            return False
        self._add(key_id, -tokens)
        return True

    def give_back(self, key_id: str, taken: int, usage: Usage) -> None:
        """The prompt was computed, or was not: this is what it took, more perhaps than was held back for it."""
        self._add(key_id, taken - (usage.prompt_tokens - usage.cached_tokens))

    def _add(self, key_id: str, tokens: float) -> None:
        self._left[key_id] = self._now(key_id) + tokens, self._clock()
        self._left.move_to_end(key_id)
        if len(self._left) > MOST_KEYS:
            self._left.popitem(last=False)

    def _now(self, key_id: str) -> float:
        left, since_s = self._left.get(key_id, (0.0, 0.0))
        # what was computed beyond it is not forgiven with time
        return left if left <= 0 else left * 0.5 ** ((self._clock() - since_s) / HALF_LIFE_S)
