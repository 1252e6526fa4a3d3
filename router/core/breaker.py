"""A replica's circuit breaker: faults of requests, which a healthy `/health` may hide, take the replica out for a
while.

closed ──faults of several organizations, a failed probe of ours, or far too slow──► open ──pause over──► half-open
   ▲                                                                                  ▲                       │
   └────── a request ended well, or a probe of ours did ──────────────────────────────┼───────────────────────┤
                                       two organizations failed, or a probe did: pause doubled ◄──────────────┘

The requests of one organization may make an engine fail, again and again. So its faults alone never open a breaker,
nor keep it from closing: they lead the organization elsewhere (avoidance.py), and the router probes the engine itself.
"""

from __future__ import annotations

from enum import Enum

import msgspec

FAULTS_TO_OPEN = 5
"""Faults in a row, without a request in between that ended well."""
FAULTS_COUNTED = 3
"""Faults counted per organization: fewer than it takes to open."""
ORGANIZATIONS_TO_REOPEN = 2
"""Organizations that failed since the breaker became half-open."""
TRIALS_AT_ONCE = 3
"""Leases of a half-open breaker, each of another organization: an organization that holds its lease for long does not
block the others."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class State(Enum):
    """The states of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker(msgspec.Struct, eq=False):
    """The breaker of one replica. The caller decides to open it for outliers; this class decides for faults and
    probes."""

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
        """The replica takes a few leases as trials."""
        return self.state is State.HALF_OPEN

    def failed(self, organization_id: str, now: float) -> bool:
        """The engine failed a request of this organization. Returns True when this opens the breaker."""
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
        """Open the breaker. Each time without a good response in between, it stays open twice as long."""
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
        """A request ended well. A request sent before the breaker opened does not close it."""
        self.faults.clear()
        if self.state is not State.OPEN:
            self._close()
            self.pause_s = FIRST_PAUSE_S

    def probed(self, well: bool, now: float) -> bool:
        """A generation probe ended. Returns True when this opens the breaker.

        A good probe closes a half-open breaker. It does not forget faults, for an engine may fail all but the shortest
        requests, nor does it shorten the next pause.
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
