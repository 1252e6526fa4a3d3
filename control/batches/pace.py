"""Decides how many lines of a batch are in flight. The number doubles with each round until the first refusal, then
grows by one with each round, and halves after a refusal (TCP's slow start and AIMD). So batches use the capacity that
is left, and live requests find room again within a round. Pure.
"""

from __future__ import annotations

FIRST, MAX = 8, 128
"""Lines in flight at first, and their limit, also for all batches of a worker together: a gateway accepts 256
connections from an address (`max_connections_per_address`), and others may share it."""
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
        """Count a served line."""
        self._limit = min(float(MAX), self._limit + (1.0 if self._probing else 1 / self._limit))

    def refused(self, now_s: float, retry_after_s: float) -> None:
        """Count a line that was refused for lack of room. retry_after_s: the gateway's advice; 0 without one."""
        self._probing = False
        self.resume_s = max(self.resume_s, now_s + retry_after_s)
        if now_s - self._halved_s >= ROUND_S:
            self._halved_s = now_s
            self._limit = max(1.0, self._limit / 2)
