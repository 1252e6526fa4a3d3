"""Prices of cached prompt tokens, as fractions of the price of a computed one, as Anthropic's API introduced them."""

from __future__ import annotations

import math

import msgspec

READ = 0.1
WRITE_5_MINUTES = 1.25
WRITE_1_HOUR = 2.0


class CachedPrice(msgspec.Struct, frozen=True):
    """Prices of a million prompt tokens."""

    read: float
    written_for_5_minutes: float
    written_for_1_hour: float


def cached_price(computed: float) -> CachedPrice:
    """computed: the price of a million uncached prompt tokens."""
    return CachedPrice(computed * READ, computed * WRITE_5_MINUTES, computed * WRITE_1_HOUR)


def reads_that_pay(write: float) -> int:
    """How often a prefix must be read before writing it is cheaper than computing it every time.

    write + n · READ ≤ 1 + n, all as fractions of the price of a computed token.
    """
    return math.ceil((write - 1) / (1 - READ))


def paid_share(hit_share: float) -> float:
    """Price of prompts as a fraction of their price without a cache: hits at `READ`, the rest in full."""
    return hit_share * READ + (1 - hit_share)
