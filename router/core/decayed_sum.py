"""A sum that decays: an amount counts less the longer ago it was added."""

from __future__ import annotations

import math

import msgspec


class DecayedSum(msgspec.Struct, eq=False):
    """A decayed sum of any unit. An amount added `memory_s` ago counts 1/e, about a third. Times are in seconds and
    never run backwards."""

    memory_s: float
    _sum: float = 0.0
    _at: float = 0.0

    def add(self, amount: float, now: float) -> None:
        """Add an amount, which is negative to take back an excess."""
        self._sum, self._at = self.at(now) + amount, now

    def at(self, now: float) -> float:
        """The sum that remains at `now`."""
        return self._sum * math.exp((self._at - now) / self.memory_s)
