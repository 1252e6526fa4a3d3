"""How many lines of a batch are in flight: twice as many after each round until the first refusal, then one more for
each round, and half after a refusal (TCP's slow start and AIMD). So batches take what the fleet has left, and live
requests find room again within a round. Pure.
"""

from __future__ import annotations

FIRST, MAX = 8, 128
"""Lines in flight at the beginning, and at most, also of all batches of a worker: a gateway takes 256 connections of an
address (`max_connections_per_address`), and others may share it."""
ROUND_S = 1.0
"""Refusals within this time count once: all lines in flight may be refused for the same reason."""


class Pace:
    """limit: lines that may be in flight."""

    def __init__(self) -> None:
        self._limit = float(FIRST)
        self._halved_s = -ROUND_S
        self._probing = True
        self.resume_s = 0.0
        """Time before which no line begins, on the callers' clock."""

    @property
    def limit(self) -> int:
        return int(self._limit)

    def served(self) -> None:
        """A line was served."""
        self._limit = min(float(MAX), self._limit + (1.0 if self._probing else 1 / self._limit))

    def refused(self, now_s: float, retry_after_s: float) -> None:
        """A line was refused for lack of room. retry_after_s: the gateway's; 0: none."""
        self._probing = False
        self.resume_s = max(self.resume_s, now_s + retry_after_s)
        if now_s - self._halved_s >= ROUND_S:
            self._halved_s = now_s
            self._limit = max(1.0, self._limit / 2)
