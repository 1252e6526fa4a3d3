"""What can happen to the router's core. Each is a plain record, so that a day can be written down and replayed.

`connection` numbers the streams as the service accepts them: what a replaced stream still delivers is recognised by
its number and ignored.
"""

from __future__ import annotations

import msgspec

from contracts.desired_state import DesiredState
from contracts.lease import Ask, LeaseEnd
from engines.base import Load


class HeldLease(msgspec.Struct, frozen=True):
    """A lease a gateway says it holds."""

    lease_id: str
    replica_id: str
    prompt_tokens: int
    max_output_tokens: int


class GatewayConnected(msgspec.Struct, frozen=True):
    """A gateway said hello. Leases of its epoch that are not among `leases` are over."""

    connection: int
    gateway_id: str
    epoch: str
    leases: tuple[HeldLease, ...] = ()


class GatewayDisconnected(msgspec.Struct, frozen=True):
    """Its stream broke; its leases live on for the grace period."""

    connection: int


class Acquire(msgspec.Struct, frozen=True):
    """A gateway asks for a place."""

    connection: int
    ask: Ask


class Cancel(msgspec.Struct, frozen=True):
    """A gateway withdraws an ask, or gives back a grant that crossed the withdrawal."""

    connection: int
    lease_id: str


class FirstToken(msgspec.Struct, frozen=True):
    """The engine began to answer."""

    connection: int
    lease_id: str
    ttft_s: float
    cached_tokens: int


class Release(msgspec.Struct, frozen=True):
    """A lease is over."""

    connection: int
    end: LeaseEnd


class StatePublished(msgspec.Struct, frozen=True):
    """A gateway handed over a version of the desired state."""

    state: DesiredState


class ReplicaProbed(msgspec.Struct, frozen=True):
    """One poll of a replica. load: None when it reports none."""

    replica_id: str
    healthy: bool
    detail: str = ""
    load: Load | None = None


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
    | ReplicaProbed
    | Tick
)
