"""Decisions of the router's core, which the service carries out and the simulator models."""

from __future__ import annotations

import msgspec

from contracts.generation import Tier
from contracts.lease import Lease
from router.core.reasons import Reason


class Welcomed(msgspec.Struct, frozen=True):
    """Answer a hello. version: the version of the desired state in force; 0 for none."""

    connection: int
    version: int


class Granted(msgspec.Struct, frozen=True):
    """Answer a lease request with a slot."""

    connection: int
    lease: Lease


class Refused(msgspec.Struct, frozen=True):
    """Answer a lease request with a refusal. code: see contracts/errors.py. reason: `cause` with the details of this
    case, for people. retry_after_s: None if a retry will not help. over_share: whether the tenant's excessive demand is
    the reason, see `core.excess`."""

    connection: int
    lease_id: str
    code: str
    reason: str
    retry_after_s: float | None
    cause: Reason
    over_share: bool = False


class Disconnect(msgspec.Struct, frozen=True):
    """Close a stream that a newer one has replaced, or whose epoch has ended."""

    connection: int
    reason: str


class PollNow(msgspec.Struct, frozen=True):
    """Poll this replica without waiting for its turn."""

    replica_id: str


class ProbeGeneration(msgspec.Struct, frozen=True):
    """Have this replica generate one token for the router, because requests fail there and its health may not show why.

    model: the engine's name for the model. tier: the model's kind of prompt. `GenerationProbed` reports the result.
    """

    replica_id: str
    model: str
    tier: Tier


class ReplayKvEvents(msgspec.Struct, frozen=True):
    """Request this replica's KV events from number `first` on again, because the router missed some."""

    replica_id: str
    first: int


Decision = Welcomed | Granted | Refused | Disconnect | PollNow | ProbeGeneration | ReplayKvEvents
