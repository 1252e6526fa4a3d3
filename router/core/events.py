"""The events of the router's core. Each is a plain record, so that a day's events can be logged and replayed.

`connection` is the number of a stream, in the order in which the service accepted them. The core recognises events of a
replaced stream by this number and ignores them.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from contracts.desired_state import DesiredState
from contracts.lease import HeldLease, LeaseEnd, LeaseRequest
from engines.drivers.base import Load


class GatewayConnected(msgspec.Struct, frozen=True):
    """A gateway sent its hello. Leases of its epoch that are not among `leases` have ended."""

    connection: int
    gateway_id: str
    epoch: str
    leases: tuple[HeldLease, ...] = ()


class GatewayDisconnected(msgspec.Struct, frozen=True):
    """A gateway's stream broke; its leases stay live for the grace period."""

    connection: int


class Acquire(msgspec.Struct, frozen=True):
    """A gateway requests a slot.

    Placement uses these fields: prompt_tokens (exact or estimated), max_output_tokens, prefix_hashes (all whole blocks
    of the prompt, also those never seen before), organization_id and share (fairness), tier (promise), priority
    (class), unit (side of a split), session_id (position on the ring if affinity is empty; may be empty), affinity
    (position on the ring), deadline_s (longest wait for a grant), idle_replica (background work that no client waits
    for).
    """

    connection: int
    ask: LeaseRequest


class Cancel(msgspec.Struct, frozen=True):
    """A gateway withdraws a request, or returns a grant that crossed the withdrawal."""

    connection: int
    lease_id: str


class FirstToken(msgspec.Struct, frozen=True):
    """The engine sent its first text, call or reasoning. A role does not count: many engines send one before prefill.

    ttft_s: time since the grant, by the gateway's clock; 0 if the core should use its own clock. cached_tokens: the
    cached part of the prompt, from the engine's first usage; 0 if unknown, in which case the release carries it.
    """

    connection: int
    lease_id: str
    ttft_s: float
    cached_tokens: int


class Release(msgspec.Struct, frozen=True):
    """A lease has ended.

    The core learns from the end's usage: prompt_tokens (if it is 0, nothing), cached_tokens (the actual prefix match),
    completion_tokens (expected lengths, time per token). A fault counts against the replica.
    """

    connection: int
    end: LeaseEnd


class StatePublished(msgspec.Struct, frozen=True):
    """A gateway delivered a version of the desired state."""

    state: DesiredState


class ReplicaPolled(msgspec.Struct, frozen=True):
    """One poll of a replica. load: None if it reports none.

    The core uses these fields of the load: running and waiting (requests of other clients), capacity_tokens (KV pool; 0
    disables memory accounting), used_tokens (held by running requests, without evictable cache), retracted (a rising
    count) and retracted_since (its increase).
    """

    replica_id: str
    healthy: bool
    detail: str = ""
    load: Load | None = None
    load_failed: bool = False
    """Whether the replica returned no readable load on request. Without a load, this is False if the replica reports
    none or has nothing new to report."""
    asked: bool = True
    """False if this router had no descriptor to poll the replica, which is no evidence about its health."""


class Probe(Enum):
    """The outcome of a generation probe."""

    WELL = "well"
    FAILED = "failed"
    LATE = "late"
    """The engine did not respond in time: it hangs or is busy."""
    UNCLEAR = "unclear"
    """The engine refused the probe: it is at its limit, or the probe does not suit this model."""


class GenerationProbed(msgspec.Struct, frozen=True):
    """The result of a ProbeGeneration."""

    replica_id: str
    probe: Probe
    detail: str = ""


class KvBatch(msgspec.Struct, frozen=True):
    """One unchanged message of an engine's KV events: its number, and the MessagePack payload of SGLang and vLLM.

    repeated: whether it answers a ReplayKvEvents.
    """

    replica_id: str
    number: int
    payload: bytes
    repeated: bool = False


class DrainReplica(msgspec.Struct, frozen=True):
    """An operator takes a replica out of use, or back into it, until the router restarts."""

    replica_id: str
    draining: bool


class Tick(msgspec.Struct, frozen=True):
    """Time has passed. The service sends a tick no later than `Dispatcher.next_wakeup`."""


Event = (
    GatewayConnected
    | GatewayDisconnected
    | Acquire
    | Cancel
    | FirstToken
    | Release
    | StatePublished
    | ReplicaPolled
    | GenerationProbed
    | KvBatch
    | DrainReplica
    | Tick
)
