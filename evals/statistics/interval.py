"""Shares and means of pairs with their 95 % intervals, where a session's pairs are not independent of each other.

The variance is that of a ratio of sums over sessions (Cochran 1977, section 6.5). A share's interval is Wilson's with
the number of pairs that as many independent ones would need to be for that variance (Korn and Graubard 1998; Dean and
Pagano 2015): it stays between 0 and 1, and says something where all pairs or none have what is counted.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import msgspec

Z = NormalDist().inv_cdf(0.975)


class Sums(msgspec.Struct, frozen=True):
    """Of each session's n pairs and their sum x: how many sessions, and the sums of n, x, x², xn and n²."""

    units: int
    n: float
    x: float
    xx: float
    xn: float
    nn: float


class Estimate(msgspec.Struct, frozen=True):
    """A number with its 95 % interval. value, lower, upper: null without pairs; lower, upper of a mean: null with fewer
    than two sessions too."""

    value: float | None
    lower: float | None
    upper: float | None
    pairs: int
    units: int


def share(sums: Sums) -> Estimate:
    """Of pairs that have something: x counts them."""
    if not sums.n:
        return _nothing(sums)
    value = sums.x / sums.n
    variance = _variance(sums, value)
    # no session differs from another, or there is but one: then sessions are what is independent
    effective = value * (1 - value) / variance if variance else float(sums.units)
    lower, upper = wilson(value, min(effective, sums.n))
    return Estimate(value, lower, upper, round(sums.n), sums.units)


def part(sums: Sums) -> Estimate:
    """Of pairs that each have a part, 0 to 1: a mean whose interval ends there too."""
    found = mean(sums)
    if found.lower is None or found.upper is None:
        return found
    return msgspec.structs.replace(found, lower=max(found.lower, 0.0), upper=min(found.upper, 1.0))


def mean(sums: Sums, *, logarithms: bool = False) -> Estimate:
    """Of pairs that measure something. logarithms: they are, and the mean of what they are of is wanted."""
    if not sums.n:
        return _nothing(sums)
    value = sums.x / sums.n
    half = None if sums.units < 2 else Z * math.sqrt(_variance(sums, value))
    lower, upper = (None, None) if half is None else (value - half, value + half)
    if logarithms:
        value, lower, upper = (
            _exp(value),
            None if lower is None else _exp(lower),
            None if upper is None else _exp(upper),
        )
    return Estimate(value, lower, upper, round(sums.n), sums.units)


def wilson(value: float, n: float) -> tuple[float, float]:
    """Wilson's interval of a share among n, which need not be whole."""
    middle = value + Z * Z / (2 * n)
    half = Z * math.sqrt(value * (1 - value) / n + Z * Z / (4 * n * n))
    scale = 1 + Z * Z / n
    return max((middle - half) / scale, 0.0), min((middle + half) / scale, 1.0)


def _variance(sums: Sums, value: float) -> float:
    """Of x / n; 0 with one session."""
    if sums.units < 2:
        return 0.0
    squares = max(sums.xx - 2 * value * sums.xn + value * value * sums.nn, 0.0)
    return sums.units / (sums.units - 1) * squares / (sums.n * sums.n)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _nothing(sums: Sums) -> Estimate:
    return Estimate(None, None, None, 0, sums.units)
