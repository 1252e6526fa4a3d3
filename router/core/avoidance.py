"""Leads organizations away from replicas that failed their requests; each organization for itself.

Per organization and replica, as Envoy ejects a host for consecutive errors, but not for every organization:

    trusted ──FAULTS_TO_AVOID of its own in a row──► avoided ──pause over──► tried, by one lease at a time
       ▲                                                ▲                      │
       └── one of its requests ended well ──────────────┼──────────────────────┤
                                                        └── it failed again, pause doubled

An organization that would have to avoid every replica that could serve it avoids none: no better replica is known
then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from enum import Enum

import msgspec

from router.core.breaker import FIRST_PAUSE_S, LONGEST_PAUSE_S

FAULTS_TO_AVOID = 3
ORGANIZATIONS_KEPT = 4_096
"""Records per pool; beyond it, the organization whose last failure is oldest is forgotten."""


class _State(Enum):
    TRUSTED = "trusted"
    AVOIDED = "avoided"
    TRIED = "tried"


class _Record(msgspec.Struct):
    """One organization and one replica."""

    state: _State = _State.TRUSTED
    faults: int = 0
    pause_s: float = FIRST_PAUSE_S
    ends_at: float = 0.0
    trial: str = ""
    """The trial lease; empty: none."""


class Avoidance:
    """The avoidance of one pool. Time passes only through `rested`."""

    def __init__(self) -> None:
        self._records: OrderedDict[str, dict[str, _Record]] = OrderedDict()
        """By organization and replica id; only pairs with faults since a request last ended well."""

    def failed(self, organization_id: str, replica_id: str, now: float) -> float | None:
        """The replica failed a request of this organization. Returns when to call `rested`, if the replica is avoided
        from now on."""
        records = self._records.setdefault(organization_id, {})
        self._records.move_to_end(organization_id)
        if len(self._records) > ORGANIZATIONS_KEPT:
            self._records.popitem(last=False)
        record = records.setdefault(replica_id, _Record())
        record.faults += 1
        if record.state is _State.AVOIDED or (record.state is _State.TRUSTED and record.faults < FAULTS_TO_AVOID):
            return None
        record.state = _State.AVOIDED
        record.trial = ""
        record.ends_at = now + record.pause_s
        record.pause_s = min(record.pause_s * 2, LONGEST_PAUSE_S)
        return record.ends_at

    def rested(self, organization_id: str, replica_id: str, now: float) -> None:
        """A pause may be over: then one lease at a time may try."""
        record = self._records.get(organization_id, {}).get(replica_id)
        if record is not None and record.state is _State.AVOIDED and record.ends_at <= now:
            record.state = _State.TRIED

    def granted(self, organization_id: str, replica_id: str, lease_id: str) -> None:
        """The organization was granted a lease there."""
        record = self._records.get(organization_id, {}).get(replica_id)
        if record is not None and record.state is _State.TRIED and not record.trial:
            record.trial = lease_id

    def ended(self, organization_id: str, replica_id: str, lease_id: str) -> None:
        """One of the organization's leases there is over, with any outcome."""
        record = self._records.get(organization_id, {}).get(replica_id)
        if record is not None and record.trial == lease_id:
            record.trial = ""

    def answered(self, organization_id: str, replica_id: str) -> None:
        """One of the organization's requests ended well there."""
        records = self._records.get(organization_id)
        if records is not None and records.pop(replica_id, None) is not None and not records:
            del self._records[organization_id]

    def forget(self, replica_id: str) -> None:
        """Forget a replica that is gone or that another engine has replaced."""
        for organization_id in [known for known, records in self._records.items() if replica_id in records]:
            self.answered(organization_id, replica_id)

    def of(self, organization_id: str) -> Collection[str]:
        """Ids of the replicas that this organization avoids now."""
        records = self._records.get(organization_id)
        if records is None:
            return ()
        return [
            replica_id
            for replica_id, record in records.items()
            if record.state is _State.AVOIDED or (record.state is _State.TRIED and record.trial)
        ]
