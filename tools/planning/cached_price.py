"""What a cached prompt token is sold for, as parts of the price of one that is computed; the shares that Anthropic's
API introduced."""

from __future__ import annotations

import math

import msgspec

READ = 0.1
WRITE_5_MINUTES = 1.25
WRITE_1_HOUR = 2.0


class CachedPrice(msgspec.Struct, frozen=True):
    """Of a million prompt tokens."""

    read: float
    written_for_5_minutes: float
    written_for_1_hour: float


def cached_price(computed: float) -> CachedPrice:
    """computed: of a million prompt tokens that no cache had."""
    return CachedPrice(computed * READ, computed * WRITE_5_MINUTES, computed * WRITE_1_HOUR)


def reads_that_pay(write: float) -> int:
    """How often a prefix has to be read until writing it was cheaper than computing it every time.

    write + n · READ ≤ 1 + n, all of them parts of the price of a computed token.
    """
    return math.ceil((write - 1) / (1 - READ))


def paid_share(hit_share: float) -> float:
    """What prompts are sold for, as a part of their price without a cache: hits at `READ`, the rest computed."""
    return hit_share * READ + (1 - hit_share)
