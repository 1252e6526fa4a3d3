"""A replica's circuit breaker: faults of requests, which a healthy `/health` may hide, take it out for a while.

closed ──faults of several organizations, a failed probe of ours, or far too slow──► open ──pause over──► half-open
   ▲                                                                                  ▲                       │
   └────── a request ended well, or a probe of ours did ──────────────────────────────┼───────────────────────┤
                                       two organizations failed, or a probe did: pause doubled ◄──────────────┘

What one organization sends can make an engine fail it, again and again. So its faults alone never open a breaker, nor
keep it from closing: they lead it elsewhere (avoidance.py), and have the router probe the engine itself.
"""

from __future__ import annotations

from enum import Enum

import msgspec

FAULTS_TO_OPEN = 5
"""In a row, nobody's request ended well in between."""
FAULTS_COUNTED = 3
"""Of one organization: fewer than it takes."""
ORGANIZATIONS_TO_REOPEN = 2
"""That failed since it is half-open."""
TRIALS_AT_ONCE = 3
"""Leases of a half-open breaker, each of another organization: one that holds its lease long keeps nobody else out."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class State(Enum):
    """The states of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker(msgspec.Struct, eq=False):
    """One replica's. Opening is decided by the caller for outliers, here for faults and probes."""

    state: State = State.CLOSED
    faults: dict[str, int] = {}
    """By organization, since a request ended well or the state changed; each up to `FAULTS_COUNTED`."""
    pause_s: float = FIRST_PAUSE_S
    opens_again_at: float = 0.0
    reason: str = ""

    @property
    def open(self) -> bool:
        """The breaker is open: its replica takes nothing."""
        return self.state is State.OPEN

    @property
    def half_open(self) -> bool:
        """It takes a few, to find out."""
        return self.state is State.HALF_OPEN

    def failed(self, organization_id: str, now: float) -> bool:
        """The engine failed a request of this organization. True when the breaker opens by it."""
        if self.state is State.OPEN:
            return False
        self.faults[organization_id] = min(self.faults.get(organization_id, 0) + 1, FAULTS_COUNTED)
        if self.state is State.HALF_OPEN:
            opens = len(self.faults) >= ORGANIZATIONS_TO_REOPEN
        else:
            opens = sum(self.faults.values()) >= FAULTS_TO_OPEN
        if opens:
            self.trip(f"requests of {len(self.faults)} organizations in a row failed", now)
        return opens

    def trip(self, reason: str, now: float) -> None:
        """Open it. Each time without a good answer in between lasts twice as long."""
        self.state = State.OPEN
        self.reason = reason
        self.faults.clear()
        self.opens_again_at = now + self.pause_s
        self.pause_s = min(self.pause_s * 2, LONGEST_PAUSE_S)

    def rested(self) -> None:
        """The pause is over: a few leases may try."""
        if self.state is State.OPEN:
            self.state = State.HALF_OPEN

    def answered(self) -> None:
        """A request ended well. One that was sent before it opened does not close it."""
        self.faults.clear()
        if self.state is not State.OPEN:
            self._close()
            self.pause_s = FIRST_PAUSE_S

    def probed(self, well: bool, now: float) -> bool:
        """A generation of our own ended. True when the breaker opens by it.

        One that went well closes a half-open one, but neither forgets faults, for an engine may fail all but the
        shortest, nor shortens the next pause.
        """
        if well:
            if self.state is State.HALF_OPEN:
                self._close()
            return False
        if self.state is State.OPEN:
            return False
        self.trip("a probe of the router failed", now)
        return True

    def _close(self) -> None:
        self.state = State.CLOSED
        self.reason = ""
