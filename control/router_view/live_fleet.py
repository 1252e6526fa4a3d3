"""The fleet as the router sees it: running and waiting requests, and replicas without requests, with the reason."""

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
    """By `slipstream fleet drain`, until it is resumed or the router restarts."""
    usable: bool
    weight: float
    """Share of load relative to its pool's others; 0: drained."""
    leases: int
    """Requests it has been given and that run."""
    max_concurrency: int
    """Of those at most so many, for the reason of `limited_by`."""
    limited_by: str
    running: int
    """As the engine reported last."""
    waiting: int
    prefill_tokens: int
    """Prompt tokens given that are still to be computed."""
    prefix_blocks: int
    """Blocks of prefixes it is thought to hold."""
    headroom_tokens: int | None
    """KV tokens that may still be given; null where it reports no capacity."""
    prefill_tokens_per_s: float
    """Learnt; 0 while nothing is known."""
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
        """The fleet now. Raises RouterUnavailable."""
        ...

    async def placements(self, request_id: str) -> list[Placement]:
        """What is remembered of a request, oldest attempt first. Raises RouterUnavailable."""
        ...


class NoFleetReader:
    """For an admin API that knows no router."""

    async def live_fleet(self) -> LiveFleet:
        raise RouterUnavailable("No router is known here: use a gateway.")

    async def placements(self, request_id: str) -> list[Placement]:
        raise RouterUnavailable("No router is known here: use a gateway.")
