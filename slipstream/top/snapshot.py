"""The data that `slipstream top` shows at one moment."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that ended in the window."""

    requests: int
    counted: int
    """Requests that were answered, or failed by the platform's fault; not those shed by their organization's excess."""
    good: int
    """Counted requests within their objective."""
    failed: int
    shed: int
    limited: int
    abandoned: int
    superseded: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    good_tokens: int
    ttft_p50_ms: float | None
    """This and the latencies below are without offline requests, which wait on purpose."""
    ttft_p99_ms: float | None
    tpot_p50_ms: float | None
    """The median of each request's mean time per token."""
    tpot_p99_ms: float | None
    gap_p99_ms: float | None
    """The 99th percentile of each request's longest gap."""


class TierNow(msgspec.Struct, frozen=True, kw_only=True):
    """One tier."""

    tier: str
    load: Load


class PoolNow(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: the router's view and its requests. Unreported values are None."""

    pool: str
    replicas: int
    """The number of replicas in the desired state."""
    usable: int | None = None
    leases: int | None = None
    capacity: int | None = None
    """Leases that its usable replicas may have."""
    queued: int | None = None
    load: Load | None = None
    """None if none of its requests ended in the window."""
    hourly_micro: int | None = None
    """The hourly cost of its replicas; None without a price."""
    per_million_good_tokens_micro: int | None = None
    """The cost by the requests that ended in the window."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment at one moment."""

    at: datetime
    window_s: int
    promised: bool
    """Whether objectives are in force; without them, no request counts."""
    router: str | None
    """The reason why the router's view is missing; None if it answered."""
    gateways: int | None
    tiers: list[TierNow]
    pools: list[PoolNow]
    currency: str
    billed_today_micro: int
    """The amount for requests that arrived since midnight UTC, at the time of the last roll-up."""
