"""Cost of pools, also per million good tokens: replica-hours of desired state times the pool's price.

A replica counts from the version of desired state that names it until the first one that does not, whether it worked,
was idle, drained or broken: it was rented anyway. Good tokens are known by the minute, so their cost covers whole
minutes that had a price from beginning to end: hours and tokens then cover the same time. All amounts are integers that
are rounded once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import NamedTuple

import msgspec

from contracts.desired_state import Pool

MICRO = 1_000_000
HOUR_US = 3_600 * MICRO


MINUTE = timedelta(minutes=1)
MICROSECOND = timedelta(microseconds=1)


class PoolCost(msgspec.Struct, frozen=True, kw_only=True):
    """One pool in one period."""

    pool: str
    replica_hours: float
    """Replica-hours of the whole period, with or without a price."""
    good_tokens: int
    """Output tokens of the whole period's requests that met their objective."""
    priced_since: datetime | None
    """The first whole minute with a price; null if there is none. The fields below cover only whole minutes with a
    price."""
    priced_replica_hours: float
    priced_good_tokens: int
    amount_micro: int | None
    """The cost of these hours, in millionths of the deployment's currency; null if no minute had a price."""
    per_million_good_tokens_micro: int | None
    """Millionths of the currency per million of these good tokens; null without a price or good tokens."""


class Span(NamedTuple):
    """The time from one moment up to another."""

    begin: datetime
    end: datetime


class Rented(NamedTuple):
    """One pool's replicas in one period."""

    used_us: int
    """Microseconds of all replicas together."""
    priced: tuple[Span, ...]
    """Whole minutes with a price, in order; only the period's last one may be shorter."""
    priced_us: int
    """Microseconds in these spans."""
    price_us: int
    """Microseconds in these spans times micro-units an hour."""


class GoodTokens(NamedTuple):
    """Good tokens of one pool in one period. priced: those in its priced spans."""

    all: int
    priced: int


NOT_RENTED = Rented(0, (), 0, 0)
NO_TOKENS = GoodTokens(0, 0)


def price_micro(pool: Pool) -> int:
    """The price of a replica-hour in millionths: the written number, not the binary one nearest to it."""
    written = Decimal(repr(pool.price_per_replica_hour))
    return int((written * MICRO).to_integral_value(ROUND_HALF_UP))


def rented(versions: Sequence[tuple[datetime, Iterable[Pool]]], begin: datetime, end: datetime) -> dict[str, Rented]:
    """Rented replicas by pool, for all pools that desired state named. versions: of desired state, each with the moment
    from which it was in force, in order. begin: the start of a minute, from which the others are counted."""
    terms: dict[str, list[tuple[Span, int, int]]] = defaultdict(list)
    """By pool: when desired state named it, with how many replicas and at which price."""
    for (since, pools), (until, _) in pairwise([*versions, (end, ())]):
        span = Span(max(since, begin), min(until, end))
        if span.begin < span.end:
            for pool in pools:
                terms[pool.name].append((span, len(pool.replicas), price_micro(pool)))
    return {name: _rented(each, begin, end) for name, each in terms.items()}


def _rented(terms: Sequence[tuple[Span, int, int]], begin: datetime, end: datetime) -> Rented:
    priced = tuple(_whole_minutes(_joined(span for span, _, price in terms if price), begin, end))
    used_us = priced_us = price_us = 0
    for span, replicas, price in terms:
        used_us += replicas * _overlap_us(span, span)
        inside_us = replicas * sum(_overlap_us(span, each) for each in priced)
        priced_us += inside_us
        price_us += inside_us * price
    return Rented(used_us, priced, priced_us, price_us)


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """The spans, in order, with adjacent ones joined."""
    last: Span | None = None
    for span in spans:
        if last is not None and last.end == span.begin:
            last = Span(last.begin, span.end)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _whole_minutes(spans: Iterable[Span], begin: datetime, end: datetime) -> Iterator[Span]:
    for span in spans:
        first = begin - (begin - span.begin) // MINUTE * MINUTE  # rounded up
        past = end if span.end == end else begin + (span.end - begin) // MINUTE * MINUTE
        if first < past:
            yield Span(first, past)


def _overlap_us(one: Span, other: Span) -> int:
    return max(min(one.end, other.end) - max(one.begin, other.begin), timedelta(0)) // MICROSECOND


def pool_costs(pools: Mapping[str, Rented], tokens: Mapping[str, GoodTokens]) -> list[PoolCost]:
    """Costs by pool, for the pools that had a replica or a good token."""
    names = {name for name, each in pools.items() if each.used_us} | {
        name for name, each in tokens.items() if name and each.all
    }
    return [_cost(name, pools.get(name, NOT_RENTED), tokens.get(name, NO_TOKENS)) for name in sorted(names)]


def _cost(pool: str, use: Rented, tokens: GoodTokens) -> PoolCost:
    return PoolCost(
        pool=pool,
        replica_hours=use.used_us / HOUR_US,
        good_tokens=tokens.all,
        priced_since=use.priced[0].begin if use.priced else None,
        priced_replica_hours=use.priced_us / HOUR_US,
        priced_good_tokens=tokens.priced,
        amount_micro=_divided(use.price_us, HOUR_US) if use.priced else None,
        per_million_good_tokens_micro=(
            _divided(use.price_us * MICRO, HOUR_US * tokens.priced) if use.priced and tokens.priced else None
        ),
    )


def _divided(amount: int, by: int) -> int:
    """Divide to the nearest integer, halves up."""
    return (2 * amount + by) // (2 * by)
