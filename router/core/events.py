"""The events of the router's core. Each is a plain record, so that a day can be written down and replayed.

`connection` numbers the streams as the service accepts them: events that a replaced stream still delivers are
recognised by its number and ignored.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from contracts.desired_state import DesiredState
from contracts.lease import HeldLease, LeaseEnd, LeaseRequest
from engines.drivers.base import Load


class GatewayConnected(msgspec.Struct, frozen=True):
    """A gateway said hello. Leases of its epoch that are not among `leases` are over."""

    connection: int
    gateway_id: str
    epoch: str
    leases: tuple[HeldLease, ...] = ()


class GatewayDisconnected(msgspec.Struct, frozen=True):
    """A gateway's stream broke; its leases live on for the grace period."""

    connection: int


class Acquire(msgspec.Struct, frozen=True):
    """A gateway asks for a slot.

    Placement reads: prompt_tokens (exact or estimated), max_output_tokens, prefix_hashes (all whole blocks of the
    prompt, also those never seen before), organization_id and share (fairness), tier (promise), priority (class), unit
    (side of a split), session_id (position on the ring where affinity is empty; may be empty), affinity (position on
    the ring), deadline_s (longest wait for a grant), idle_replica (background work that no client waits for).
    """

    connection: int
    ask: LeaseRequest


class Cancel(msgspec.Struct, frozen=True):
    """A gateway withdraws an ask, or gives back a grant that crossed the withdrawal."""

    connection: int
    lease_id: str


class FirstToken(msgspec.Struct, frozen=True):
    """The engine began to answer with text, a call or reasoning; many engines send a role before they read the prompt.

    ttft_s: from the grant to that moment, by the gateway's clock; 0: the core uses its own clock. cached_tokens: of
    the prompt, by the engine's first usage; 0 if it is not known yet, in which case the release carries it.
    """

    connection: int
    lease_id: str
    ttft_s: float
    cached_tokens: int


class Release(msgspec.Struct, frozen=True):
    """A lease is over.

    From the end's usage the core learns: prompt_tokens (0: unknown, nothing is learnt), cached_tokens (the truth about
    the prefix), completion_tokens (expected lengths, time per token). A fault counts against the replica.
    """

    connection: int
    end: LeaseEnd


class StatePublished(msgspec.Struct, frozen=True):
    """A gateway delivered a version of the desired state."""

    state: DesiredState


class ReplicaPolled(msgspec.Struct, frozen=True):
    """One poll of a replica. load: None when it reports none.

    The core uses of the load: running and waiting (requests of other clients), capacity_tokens (KV pool; 0 disables
    memory accounting), used_tokens (held by running requests, evictable cache not counted), retracted (a rising count)
    and retracted_since (its increase).
    """

    replica_id: str
    healthy: bool
    detail: str = ""
    load: Load | None = None
    load_failed: bool = False
    """The replica was asked for its load and returned none that can be read. Without a load, this is False where the
    replica reports none or has nothing new to report."""
    asked: bool = True
    """False: this router had no descriptor to poll it, which says nothing about its health."""


class Probe(Enum):
    """The outcome of a generation probe."""

    WELL = "well"
    FAILED = "failed"
    LATE = "late"
    """No response in time: the engine hangs or is busy."""
    UNCLEAR = "unclear"
    """The engine refused the probe: it is at its limit, or the probe does not suit this model."""


class GenerationProbed(msgspec.Struct, frozen=True):
    """The answer to a ProbeGeneration."""

    replica_id: str
    probe: Probe
    detail: str = ""


class KvBatch(msgspec.Struct, frozen=True):
    """One message of an engine's KV events, unchanged: its number, and the MessagePack payload that SGLang and vLLM
    publish.

    repeated: it answers a ReplayKvEvents.
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
    """Time has passed; due no later than `Dispatcher.next_wakeup`."""


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
