"""A gateway's side of the lease protocol, without I/O: waiting requests, live leases, and endings yet to be sent.

`router.client` transports its messages; the stateful test runs the same book over a faulty channel.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from enum import Enum

import msgspec

from contracts.lease import HeldLease, Lease, LeaseEnd, LeaseRequest, prefill_id
from contracts.proto import router_pb2 as pb
from contracts.usage import Finish
from router.protocol import messages


class Pending(msgspec.Struct, frozen=True):
    """An unanswered lease request. deadline_at: seconds on the caller's monotonic clock."""

    ask: LeaseRequest
    deadline_at: float


class Ending(msgspec.Struct, frozen=True):
    """A release that has yet to be sent, with the lease that it ends; a hello must name the lease until then."""

    lease: HeldLease
    end: LeaseEnd


class Crossing(Enum):
    """The state of the lease request when its grant arrives."""

    AWAITED = "awaited"
    KNOWN = "known"
    """The lease is already live: the grant is a duplicate."""
    UNWANTED = "unwanted"
    """The request was withdrawn or already answered, so the slot must be released."""


class LeaseBook:
    """Every lease of one gateway epoch.

    endings_limit: number of releases remembered while the router is unreachable. Beyond it, the oldest is dropped; the
    next hello omits that lease, which ends it.
    """

    def __init__(self, endings_limit: int) -> None:
        self.pending: dict[str, Pending] = {}
        self.live: dict[str, HeldLease] = {}
        self.prefills: dict[str, HeldLease] = {}
        """Slots on prefill engines, by lease id; the ids are a subset of the live leases."""
        self.first_tokens: dict[str, tuple[float, int]] = {}
        """Seconds until the first token, and cached tokens, of the live leases that have one."""
        self.endings: OrderedDict[str, Ending] = OrderedDict()
        self._endings_limit = endings_limit

    def asked(self, ask: LeaseRequest, now: float) -> None:
        """Start waiting for an answer. Raises ValueError if the lease id is in use."""
        if ask.lease_id in self.pending or ask.lease_id in self.live:
            raise ValueError(f"lease id {ask.lease_id} is in use")
        self.pending[ask.lease_id] = Pending(ask, now + ask.deadline_s)

    def granted(self, lease: Lease) -> Crossing:
        """Record a grant. If it is AWAITED, the lease is now live."""
        pending = self.pending.pop(lease.lease_id, None)
        if pending is None:
            return Crossing.KNOWN if lease.lease_id in self.live else Crossing.UNWANTED
        ask = pending.ask
        self.live[lease.lease_id] = HeldLease(
            lease.lease_id, lease.engine.replica_id, ask.prompt_tokens, ask.max_output_tokens
        )
        if lease.prefill is not None:
            self.prefills[lease.lease_id] = HeldLease(
                prefill_id(lease.lease_id), lease.prefill.replica_id, ask.prompt_tokens, max_output_tokens=1
            )
        return Crossing.AWAITED

    def began(self, lease_id: str, ttft_s: float, cached_tokens: int) -> bool:
        """Record the first token, which shows that the prefill engine has finished; False if the lease is not live."""
        self.prefills.pop(lease_id, None)
        if lease_id not in self.live:
            return False
        self.first_tokens[lease_id] = ttft_s, cached_tokens
        return True

    def refused(self, lease_id: str) -> bool:
        """Record a refusal; False if no request waited for it."""
        return self.pending.pop(lease_id, None) is not None

    def withdrawn(self, lease_id: str) -> Ending | None:
        """Stop waiting. Returns the ending to send if a grant has arrived; None if the router must get a Cancel."""
        if self.pending.pop(lease_id, None) is not None:
            return None
        return self.released(LeaseEnd(lease_id, Finish.NOT_PLACED))

    def released(self, end: LeaseEnd) -> Ending | None:
        """End a live lease. Returns the ending to send to the router; None if the lease was not live."""
        self.prefills.pop(end.lease_id, None)
        self.first_tokens.pop(end.lease_id, None)
        lease = self.live.pop(end.lease_id, None)
        return None if lease is None else Ending(lease, end)

    def remember(self, endings: Iterable[Ending]) -> None:
        """Keep endings that could not be sent until the next hello."""
        for ending in endings:
            self.endings[ending.lease.lease_id] = ending
        while len(self.endings) > self._endings_limit:
            self.endings.popitem(last=False)

    def hello(self, gateway_id: str, epoch: str) -> pb.GatewayMessage:
        """The first message of a connection: all leases of this gateway, including those of unsent endings."""
        held = [*self.live.values(), *self.prefills.values(), *(ending.lease for ending in self.endings.values())]
        leases = [
            pb.LiveLease(
                lease_id=lease.lease_id,
                replica_id=lease.replica_id,
                prompt_tokens=lease.prompt_tokens,
                max_output_tokens=lease.max_output_tokens,
            )
            for lease in held
        ]
        return pb.GatewayMessage(hello=pb.Hello(gateway_id=gateway_id, epoch=epoch, leases=leases))

    def take_endings(self) -> list[Ending]:
        """Remove and return the remembered endings, to be sent after a welcome."""
        endings = list(self.endings.values())
        self.endings.clear()
        return endings

    def reports(self) -> list[pb.GatewayMessage]:
        """A report of each live lease's first token, to be sent (again) after a welcome: the former may be lost, and
        the router would count the prompt as ahead of all others until the lease ends."""
        return [messages.first_token(lease_id, *first) for lease_id, first in self.first_tokens.items()]

    def asks(self, now: float) -> list[pb.GatewayMessage]:
        """An Acquire for every unanswered request, to be sent (again) after a welcome."""
        return [messages.acquire(pending.ask, pending.deadline_at - now) for pending in self.pending.values()]
