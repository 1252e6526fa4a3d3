"""What `slipstream top` shows of one moment."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that ended in the window."""

    requests: int
    counted: int
    """Of these, answered, or failed by the platform's fault; not those shed by their own organization's excess."""
    good: int
    """Of the counted ones, within their objective."""
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
    """This and those below: of requests that are not offline, which wait on purpose."""
    ttft_p99_ms: float | None
    tpot_p50_ms: float | None
    """Of each request's mean time per token."""
    tpot_p99_ms: float | None
    gap_p99_ms: float | None
    """Of each request's longest gap."""


class TierNow(msgspec.Struct, frozen=True, kw_only=True):
    """One tier."""

    tier: str
    load: Load


class PoolNow(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: the router's view and its requests. Unreported values are None."""

    pool: str
    replicas: int
    """In desired state."""
    usable: int | None = None
    leases: int | None = None
    capacity: int | None = None
    """Leases that its usable replicas may have."""
    queued: int | None = None
    load: Load | None = None
    """None: no request of its ended in the window."""
    hourly_micro: int | None = None
    """What its replicas cost an hour; None: it has no price."""
    per_million_good_tokens_micro: int | None = None
    """By what ended in the window."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything."""

    at: datetime
    window_s: int
    promised: bool
    """Objectives are in force; without them nothing counts."""
    router: str | None
    """Why nothing is known of the router; None: it answered."""
    gateways: int | None
    tiers: list[TierNow]
    pools: list[PoolNow]
    currency: str
    billed_today_micro: int
    """For requests that arrived since midnight UTC, at the time of the last roll-up."""
