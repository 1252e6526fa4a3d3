"""The fleet as the router sees it: running and waiting requests, and why replicas have none."""

from __future__ import annotations

from typing import Protocol

import msgspec

from contracts.errors import RouterUnavailable
from control.router_view.placement import Placement


class LiveReplica(msgspec.Struct, frozen=True, kw_only=True):
    """One engine. usable: it is given requests now; health: `healthy`, `suspect`, `unhealthy` or `unknown`, by its last
    poll, and detail what that said; breaker: `closed`, `open` (it failed requests and is kept from them) or
    `half_open` (a few are tried)."""

    id: str
    url: str
    driver: str
    health: str
    detail: str
    breaker: str
    breaker_reason: str
    draining: bool
    """Drained by `slipstream fleet drain`, until it is resumed or the router restarts."""
    usable: bool
    weight: float
    """Share of load relative to its pool's others; 0 if drained."""
    leases: int
    """Running requests that the router gave it."""
    max_concurrency: int
    """Limit of `leases`, for the reason in `limited_by`."""
    limited_by: str
    running: int
    """Running requests in the engine's last report."""
    waiting: int
    prefill_tokens: int
    """Prompt tokens that it must still compute."""
    prefix_blocks: int
    """Estimated number of prefix blocks that it holds."""
    headroom_tokens: int | None
    """KV tokens that are still free; null if it reports no capacity."""
    prefill_tokens_per_s: float
    """Learned rate; 0 while unknown."""
    hardware: str


class LivePool(msgspec.Struct, frozen=True, kw_only=True):
    """Engines that serve the same models. queued: requests that wait for a place; speculation: whether its engines
    draft tokens ahead, and why, in words."""

    name: str
    queued: int
    speculation: str
    replicas: list[LiveReplica]


class LiveFleet(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. version: of the fleet that the router places by; gateways: connected to it."""

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
