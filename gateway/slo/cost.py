"""What pools cost, and what that is for a million good tokens: replica-hours of desired state times the pool's price.

A replica counts from the version of desired state that names it until the first one that does not, whether it worked,
was idle, drained or broken: it was rented all the same. Integers only, rounded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise

import msgspec

from contracts.desired_state import Pool

MICRO = 1_000_000
HOUR_US = 3_600 * MICRO


class PoolCost(msgspec.Struct, frozen=True, kw_only=True):
    """One pool in one period."""

    pool: str
    replica_hours: float
    amount_micro: int | None
    """Millionths of the deployment's currency; null: desired state names no price for the pool."""
    good_tokens: int
    """Output tokens of requests that kept their objective."""
    per_million_good_tokens_micro: int | None
    """Millionths of the currency for a million good tokens; null without a price, or without a good token."""


def price_micro(pool: Pool) -> int:
    """The price of a replica-hour in millionths: what was written, not the binary number nearest to it."""
    written = Decimal(repr(pool.price_per_replica_hour))
    return int((written * MICRO).to_integral_value(ROUND_HALF_UP))


def pool_costs(
    versions: Sequence[tuple[datetime, Iterable[Pool]]], good_tokens: dict[str, int], begin: datetime, end: datetime
) -> list[PoolCost]:
    """By pool's name, of the pools that had a replica or a good token. versions: of desired state, each with the moment
    from which it was in force, in order; good_tokens: by pool."""
    replica_us: dict[str, int] = {}
    priced: dict[str, int] = {}
    """Microseconds times micro-units an hour."""
    for (since, pools), (until, _) in pairwise([*versions, (end, ())]):
        overlap_us = max(min(until, end) - max(since, begin), timedelta(0)) // timedelta(microseconds=1)
        for pool in pools:
            used_us = len(pool.replicas) * overlap_us
            replica_us[pool.name] = replica_us.get(pool.name, 0) + used_us
            if price := price_micro(pool):
                priced[pool.name] = priced.get(pool.name, 0) + used_us * price
    names = {name for name, used_us in replica_us.items() if used_us} | {name for name in good_tokens if name}
    return [_cost(name, replica_us.get(name, 0), priced.get(name), good_tokens.get(name, 0)) for name in sorted(names)]


def _cost(pool: str, used_us: int, priced: int | None, good_tokens: int) -> PoolCost:
    return PoolCost(
        pool=pool,
        replica_hours=used_us / HOUR_US,
        amount_micro=None if priced is None else _divided(priced, HOUR_US),
        good_tokens=good_tokens,
        per_million_good_tokens_micro=(
            None if priced is None or not good_tokens else _divided(priced * MICRO, HOUR_US * good_tokens)
        ),
    )


def _divided(amount: int, by: int) -> int:
    """To the nearest integer, halves up."""
    return (2 * amount + by) // (2 * by)
