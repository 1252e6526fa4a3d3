"""Decisions of the router's core. The service carries them out; the simulator models them."""

from __future__ import annotations

import msgspec

from contracts.generation import Tier
from contracts.lease import Lease
from router.core.reasons import Reason


class Welcomed(msgspec.Struct, frozen=True):
    """Answer a hello. version: the desired state held, 0 for none."""

    connection: int
    version: int


class Granted(msgspec.Struct, frozen=True):
    """Answer an ask with a slot."""

    connection: int
    lease: Lease


class Refused(msgspec.Struct, frozen=True):
    """Answer an ask with a refusal. code: of contracts/errors.py. reason: for people, with the details of this case
    added to `cause`. retry_after_s None: a retry will not help. over_share: there was no room because the tenant
    demands too much, see `core.excess`."""

    connection: int
    lease_id: str
    code: str
    reason: str
    retry_after_s: float | None
    cause: Reason
    over_share: bool = False


class Disconnect(msgspec.Struct, frozen=True):
    """Close a stream: a newer one has replaced it, or its epoch is over."""

    connection: int
    reason: str


class PollNow(msgspec.Struct, frozen=True):
    """Poll this replica without waiting for its turn."""

    replica_id: str


class ProbeGeneration(msgspec.Struct, frozen=True):
    """Have this replica generate one token for the router: requests fail there, and its health may not show why.

    model: the engine's name for it. tier: the kind of prompt the model serves. Answered by `GenerationProbed`.
    """

    replica_id: str
    model: str
    tier: Tier


class ReplayKvEvents(msgspec.Struct, frozen=True):
    """Ask this replica to repeat its KV events from a number on: the router missed some."""

    replica_id: str
    first: int


Decision = Welcomed | Granted | Refused | Disconnect | PollNow | ProbeGeneration | ReplayKvEvents
