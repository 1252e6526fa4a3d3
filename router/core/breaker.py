"""A replica's circuit breaker, which takes the replica out for a while after failed requests. A healthy `/health` may
hide such faults.

closed ──faults of several organizations, a failed probe of ours, or far too slow──► open ──pause over──► half-open
   ▲                                                                                  ▲                       │
   └────── a request ended well, or a probe of ours did ──────────────────────────────┼───────────────────────┤
                                       two organizations failed, or a probe did: pause doubled ◄──────────────┘

The requests of one organization may make an engine fail again and again. So its faults alone never open a breaker or
keep it from closing: they lead the organization elsewhere (avoidance.py), and the router probes the engine itself.
"""

from __future__ import annotations

from enum import Enum

import msgspec

FAULTS_TO_OPEN = 5
"""Faults, without a request in between that ended well, that open the breaker."""
FAULTS_COUNTED = 3
"""Most faults counted per organization, which are fewer than open the breaker."""
ORGANIZATIONS_TO_REOPEN = 2
"""Number of organizations with failures that open a half-open breaker again."""
TRIALS_AT_ONCE = 3
"""Leases of a half-open breaker, each of a different organization, so that an organization that holds its lease for
long does not block the others."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class State(Enum):
    """The states of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker(msgspec.Struct, eq=False):
    """The breaker of one replica. This class opens it for faults and failed probes, the caller for outliers."""

    state: State = State.CLOSED
    faults: dict[str, int] = {}
    """Faults by organization since a request ended well or the state changed; each up to `FAULTS_COUNTED`."""
    pause_s: float = FIRST_PAUSE_S
    opens_again_at: float = 0.0
    reason: str = ""

    @property
    def open(self) -> bool:
        """Whether the breaker is open, so that its replica gets no requests."""
        return self.state is State.OPEN

    @property
    def half_open(self) -> bool:
        """Whether the replica gets only a few leases, as trials."""
        return self.state is State.HALF_OPEN

    def failed(self, organization_id: str, now: float) -> bool:
        """Record that the engine failed a request of this organization. Returns True if this opens the breaker."""
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
        """Open the breaker. Without a good response in between, each pause is twice as long as the one before."""
        self.state = State.OPEN
        self.reason = reason
        self.faults.clear()
        self.opens_again_at = now + self.pause_s
        self.pause_s = min(self.pause_s * 2, LONGEST_PAUSE_S)

    def rested(self) -> None:
        """End the pause, so that a few leases may try the replica."""
        if self.state is State.OPEN:
            self.state = State.HALF_OPEN

    def answered(self) -> None:
        """Record that a request ended well. A request sent before the breaker opened does not close it."""
        self.faults.clear()
        if self.state is not State.OPEN:
            self._close()
            self.pause_s = FIRST_PAUSE_S

    def probed(self, well: bool, now: float) -> bool:
        """Record the end of a generation probe. Returns True if this opens the breaker.

        A good probe closes a half-open breaker. It neither clears faults, because an engine may fail all but the
        shortest requests, nor shortens the next pause.
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
