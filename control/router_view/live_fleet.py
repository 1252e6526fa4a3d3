"""The fleet as the router sees it: running and waiting requests, and why replicas have none."""

from __future__ import annotations

from typing import Protocol

import msgspec

from contracts.errors import RouterUnavailable
from control.router_view.placement import Placement


class LiveReplica(msgspec.Struct, frozen=True, kw_only=True):
    """One engine. usable: whether it gets requests now. health: `healthy`, `suspect`, `unhealthy` or `unknown`, by its
    last poll. detail: the result of that poll. breaker: `closed`, `open` (requests failed, so it gets none) or
    `half_open` (it gets a few requests as a test)."""

    id: str
    url: str
    driver: str
    health: str
    detail: str
    breaker: str
    breaker_reason: str
    draining: bool
    """Whether `slipstream fleet drain` drained it. Draining lasts until `resume` or until the router restarts."""
    usable: bool
    weight: float
    """Share of load relative to its pool's others; 0 if drained."""
    leases: int
    """Running requests that the router assigned to it."""
    max_concurrency: int
    """Limit of `leases`, for the reason in `limited_by`."""
    limited_by: str
    running: int
    """Running requests, as last reported by the engine."""
    waiting: int
    prefill_tokens: int
    """Prompt tokens that it still has to compute."""
    prefix_blocks: int
    """Estimated number of prefix blocks that it holds."""
    headroom_tokens: int | None
    """Free KV tokens; null if it reports no capacity."""
    prefill_tokens_per_s: float
    """Learned rate; 0 while unknown."""
    hardware: str


class LivePool(msgspec.Struct, frozen=True, kw_only=True):
    """Engines that serve the same models. queued: requests that wait for a slot. speculation: whether its engines draft
    tokens, and the reason."""

    name: str
    queued: int
    speculation: str
    replicas: list[LiveReplica]


class LiveFleet(msgspec.Struct, frozen=True, kw_only=True):
    """The router's view. version: the fleet version by which the router places requests. gateways: the number of
    connected gateways."""

    version: int
    gateways: int
    pools: list[LivePool]


class FleetReader(Protocol):
    """A client of the router."""

    async def live_fleet(self) -> LiveFleet:
        """The current fleet. Raises RouterUnavailable."""
        ...

    async def placements(self, request_id: str) -> list[Placement]:
        """The records of a request, oldest attempt first. Raises RouterUnavailable."""
        ...


class NoFleetReader:
    """The reader of an admin API without a router."""

    async def live_fleet(self) -> LiveFleet:
        raise RouterUnavailable("No router is known here: use a gateway.")

    async def placements(self, request_id: str) -> list[Placement]:
        raise RouterUnavailable("No router is known here: use a gateway.")
