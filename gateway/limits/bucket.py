"""The counters one request passes, as plain data: what the Lua script and its local twin both decide over.

A new level of limits (project, organization, tier) is more buckets in the tuple, under one hash tag.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

from gateway.limits.key_limits import KeyLimits

MINUTE_MS = 60_000


class Kind(StrEnum):
    """How a bucket counts."""

    RATE = "rate"
    """Token bucket: holds `limit`, refills `limit` per period, starts full."""
    CONCURRENCY = "concurrency"
    """At most `limit` reservations open at a time, each held by a lease."""


class Counter(StrEnum):
    """What is counted; the name in messages, metrics and keys."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    CONCURRENCY = "concurrency"


class Bucket(msgspec.Struct, frozen=True):
    """One counter of one level. key: where it lives in Valkey. period_ms: 0 for concurrency."""

    counter: Counter
    kind: Kind
    key: str
    limit: int
    period_ms: int

    def amount(self, requests: int, tokens: int) -> int:
        """What a request of this size takes from the bucket."""
        return tokens if self.counter is Counter.TOKENS else requests

    @property
    def capacity_units(self) -> int:
        """A full rate bucket, in units of 1/period_ms (see script.lua)."""
        return self.limit * self.period_ms


class Plan(msgspec.Struct, frozen=True):
    """Everything one key's requests are counted in. record_prefix: begins the keys of its reservations' records."""

    buckets: tuple[Bucket, ...]
    record_prefix: str


class Status(IntEnum):
    """The answer to a reserve; the numbers are script.lua's."""

    ADMITTED = 0
    REFUSED = 1
    TOO_EXPENSIVE = 2
    SETTLED = 3
    """The id was settled or undone before: nothing was taken."""


class Decision(msgspec.Struct, frozen=True):
    """What a reserve decided. decided_by: number of the refusing bucket from 1, or 0. wait_ms: until this request would
    pass if nobody else came. levels: per bucket the units left, or the requests running."""

    status: Status
    decided_by: int
    wait_ms: int
    levels: tuple[int, ...]


def plan_of(prefix: str, key_id: str, limits: KeyLimits, share: int = 1) -> Plan | None:
    """The plan of one key; None when it has no limit at all. share: each limit is divided by it, never below 1."""
    tagged = f"{prefix}:{{{key_id}}}:"
    buckets = []
    for counter, limit, period_ms in (
        (Counter.REQUESTS, limits.requests_per_minute, MINUTE_MS),
        (Counter.TOKENS, limits.tokens_per_minute, MINUTE_MS),
        (Counter.CONCURRENCY, limits.max_concurrency, 0),
    ):
        if limit is not None:
            kind = Kind.RATE if period_ms else Kind.CONCURRENCY
            part = limit if share == 1 else max(1, limit // share)
            buckets.append(Bucket(counter, kind, tagged + counter.value, part, period_ms))
    return Plan(tuple(buckets), tagged + "reservation:") if buckets else None
