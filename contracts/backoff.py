"""Exponential backoff: each pause is twice as long as the one before it, up to a maximum."""

from __future__ import annotations

import math
import random


class Backoff:
    """The pauses between attempts at one operation; the caller does the waiting.

    jitter: the random part of each pause, 0 to 1, so that clients that lost a connection at the same moment do not all
    reconnect together. stable_after_s: an attempt that lasted this long counts as successful.
    """

    def __init__(
        self, first_s: float, longest_s: float, *, jitter: float = 0.5, stable_after_s: float = math.inf
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._jitter = jitter
        self._stable_after_s = stable_after_s
        self._pause_s = first_s

    def next_s(self, held_s: float = 0.0) -> float:
        """Seconds to wait before the next attempt, after one that lasted `held_s`; the following pause is longer."""
        if held_s >= self._stable_after_s:
            self.reset()
        pause_s = self._pause_s
        self._pause_s = min(self._longest_s, pause_s * 2)
        return pause_s * random.uniform(1 - self._jitter, 1)  # noqa: S311  not a secret

    def reset(self) -> None:
        """Return to the shortest pause, because the last attempt succeeded."""
        self._pause_s = self._first_s
