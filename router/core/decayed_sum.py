"""A sum that forgets: what was added counts less the longer ago it was."""

from __future__ import annotations

import math

import msgspec


class DecayedSum(msgspec.Struct, eq=False):
    """Of any unit. What was added `memory_s` ago counts for a third (1/e). Times: seconds that never run backwards."""

    memory_s: float
    _sum: float = 0.0
    _at: float = 0.0

    def add(self, amount: float, now: float) -> None:
        """amount: negative to take back what was added too much."""
        self._sum, self._at = self.at(now) + amount, now

    def at(self, now: float) -> float:
        """What is left of it now."""
        return self._sum * math.exp((self._at - now) / self.memory_s)
