"""One epoch of one gateway: its stream, its leases, its waiting asks."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from contracts.lease import Lease

if TYPE_CHECKING:
    from router.core.waiting import Waiting

ENDED_LIMIT = 4_096
"""Lease ids remembered as over. A stream keeps order, so this only guards against copies that arrive late."""


class LiveLease(msgspec.Struct):
    """A lease as the core holds it."""

    lease_id: str
    replica_id: str
    tokens: int
    since: float
    lease: Lease | None
    """As granted, so that a second ask gets the same answer; None when adopted from a hello."""


class Session:
    """Mutable; owned by the dispatcher."""

    __slots__ = ("connection", "ended", "epoch", "gateway_id", "grace_ends_at", "leases", "waiting")

    def __init__(self, gateway_id: str, epoch: str) -> None:
        self.gateway_id = gateway_id
        self.epoch = epoch
        self.connection: int | None = None
        """None while disconnected."""
        self.grace_ends_at: float | None = None
        self.leases: dict[str, LiveLease] = {}
        self.waiting: dict[str, Waiting] = {}
        self.ended: OrderedDict[str, None] = OrderedDict()

    def remember_ended(self, lease_id: str) -> None:
        """This id is over for good: a late copy of its acquire must not revive it."""
        self.ended[lease_id] = None
        if len(self.ended) > ENDED_LIMIT:
            self.ended.popitem(last=False)
