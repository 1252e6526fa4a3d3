"""What the router's core wants done. The service does it; the simulator models it."""

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
    """Answer an ask with a place."""

    connection: int
    lease: Lease


class Refused(msgspec.Struct, frozen=True):
    """Answer an ask with a no. code: of contracts/errors.py. reason: for people, with what the case adds to `cause`.
    retry_after_s None: asking again will not help. over_share: there was no room for it because its tenant asks for
    too much, see `core.excess`."""

    connection: int
    lease_id: str
    code: str
    reason: str
    retry_after_s: float | None
    cause: Reason
    over_share: bool = False


class Disconnect(msgspec.Struct, frozen=True):
    """Close a stream: a newer one has taken its place, or its epoch is over."""

    connection: int
    reason: str


class PollNow(msgspec.Struct, frozen=True):
    """Poll this replica without waiting for its turn."""

    replica_id: str


class ProbeGeneration(msgspec.Struct, frozen=True):
    """Have this replica generate one token for the router: requests fail there, and its health may not show why.

    model: as the engine calls it. tier: what kind of prompt the model is for. Answered by `GenerationProbed`.
    """

    replica_id: str
    model: str
    tier: Tier


class ReplayKvEvents(msgspec.Struct, frozen=True):
    """Ask this replica to repeat its KV events from a number on: some were missed."""

    replica_id: str
    first: int


Decision = Welcomed | Granted | Refused | Disconnect | PollNow | ProbeGeneration | ReplayKvEvents
