"""A replica's circuit breaker: faults of requests, which a healthy `/health` may hide, take it out for a while.

closed ──faults in a row, or far slower than its pool──► open ──pause over──► trial: one lease at a time
   ▲                                                      ▲                      │
   └───────────────── it answered well ───────────────────┼──────────────────────┤
                                                          └── it failed again, pause doubled
"""

from __future__ import annotations

from enum import Enum

FAULTS_IN_A_ROW = 5
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class State(Enum):
    """Of the breaker."""

    CLOSED = "closed"
    OPEN = "open"
    TRIAL = "trial"


class Breaker:
    """One replica's. Opening is decided by the caller for outliers, here for faults."""

    __slots__ = ("faults", "opens_again_at", "pause_s", "reason", "state")

    def __init__(self) -> None:
        self.state = State.CLOSED
        self.faults = 0
        """Requests in a row that the engine failed."""
        self.pause_s = FIRST_PAUSE_S
        self.opens_again_at = 0.0
        self.reason = ""

    @property
    def open(self) -> bool:
        """It takes nothing."""
        return self.state is State.OPEN

    def places(self, most: int) -> int:
        """Leases it may hold at once."""
        return min(most, 1) if self.state is State.TRIAL else most

    def failed(self, now: float) -> bool:
        """The engine failed a request. True when the breaker opens by it."""
        self.faults += 1
        if self.state is State.TRIAL or (self.state is State.CLOSED and self.faults >= FAULTS_IN_A_ROW):
            self.trip(f"{self.faults} requests in a row failed", now)
            return True
        return False

    def trip(self, reason: str, now: float) -> None:
        """Open it. Each time without a good answer in between lasts twice as long."""
        self.state = State.OPEN
        self.reason = reason
        self.opens_again_at = now + self.pause_s
        self.pause_s = min(self.pause_s * 2, LONGEST_PAUSE_S)

    def rested(self) -> None:
        """The pause is over: one lease at a time may try."""
        if self.state is State.OPEN:
            self.state = State.TRIAL

    def answered(self) -> bool:
        """A request ended well. True when the breaker closes by it."""
        self.faults = 0
        if self.state is State.TRIAL:
            self.state = State.CLOSED
            self.pause_s = FIRST_PAUSE_S
            self.reason = ""
            return True
        return False
