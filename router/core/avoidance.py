"""Leads each organization away from replicas that failed its own requests.

Each pair of an organization and a replica has these states. Envoy also ejects a host for consecutive errors, but for
all clients:

    trusted ──FAULTS_TO_AVOID of its own in a row──► avoided ──pause over──► tried, by one lease at a time
       ▲                                                ▲                      │
       └── one of its requests ended well ──────────────┼──────────────────────┤
                                                        └── it failed again, pause doubled

An organization that would have to avoid every replica that could serve it avoids none, because no better one is known.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from enum import Enum

import msgspec

from router.core.breaker import FIRST_PAUSE_S, LONGEST_PAUSE_S

FAULTS_TO_AVOID = 3
ORGANIZATIONS_KEPT = 4_096
"""Organizations with records per pool; beyond it, the organization whose last failure is oldest is dropped."""


class _State(Enum):
    TRUSTED = "trusted"
    AVOIDED = "avoided"
    TRIED = "tried"


class _Record(msgspec.Struct):
    """The state of one organization and one replica."""

    state: _State = _State.TRUSTED
    faults: int = 0
    pause_s: float = FIRST_PAUSE_S
    ends_at: float = 0.0
    trial: str = ""
    """The trial lease; empty for none."""


class Avoidance:
    """The avoidance of one pool. Time passes only through `rested`."""

    def __init__(self) -> None:
        self._records: OrderedDict[str, dict[str, _Record]] = OrderedDict()
        """Records by organization and replica id, only of pairs with faults since a request last ended well."""

    def failed(self, organization_id: str, replica_id: str, now: float) -> float | None:
        """Record that the replica failed a request of this organization. If the organization now starts to avoid the
        replica, returns the time at which to call `rested`."""
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
        """End a pause whose time has passed, so that one lease at a time may try the replica."""
        record = self._records.get(organization_id, {}).get(replica_id)
        if record is not None and record.state is _State.AVOIDED and record.ends_at <= now:
            record.state = _State.TRIED

    def granted(self, organization_id: str, replica_id: str, lease_id: str) -> None:
        """Record a lease of the organization on the replica, which may be its trial."""
        record = self._records.get(organization_id, {}).get(replica_id)
        if record is not None and record.state is _State.TRIED and not record.trial:
            record.trial = lease_id

    def ended(self, organization_id: str, replica_id: str, lease_id: str) -> None:
        """Record the end of one of the organization's leases on the replica, with any outcome."""
        record = self._records.get(organization_id, {}).get(replica_id)
        if record is not None and record.trial == lease_id:
            record.trial = ""

    def answered(self, organization_id: str, replica_id: str) -> None:
        """Record that one of the organization's requests ended well on the replica."""
        records = self._records.get(organization_id)
        if records is not None and records.pop(replica_id, None) is not None and not records:
            del self._records[organization_id]

    def forget(self, replica_id: str) -> None:
        """Drop the records of a replica that was removed or whose engine was replaced."""
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
