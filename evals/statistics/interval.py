"""Shares and means of pairs with their 95 % intervals, if the pairs of a session are not independent of each other.

The variance is that of a ratio of sums over sessions (Cochran 1977, section 6.5). A share's interval is Wilson's for
the number of independent pairs that would have this variance (Korn and Graubard 1998; Dean and Pagano 2015): it stays
between 0 and 1, and is meaningful even if all pairs or none are counted.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import msgspec

Z = NormalDist().inv_cdf(0.975)


class Sums(msgspec.Struct, frozen=True):
    """Over sessions with n pairs whose values add up to x: number of sessions, and the sums of n, x, x², xn and n²."""

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
    """The share of pairs with a property; x counts them."""
    if not sums.n:
        return _nothing(sums)
    value = sums.x / sums.n
    variance = _variance(sums, value)
    # if no session differs from another, or there is only one, only sessions count as independent
    effective = value * (1 - value) / variance if variance else float(sums.units)
    lower, upper = wilson(value, min(effective, sums.n))
    return Estimate(value, lower, upper, round(sums.n), sums.units)


def part(sums: Sums) -> Estimate:
    """The mean of values from 0 to 1, with an interval that is also within 0 and 1."""
    found = mean(sums)
    if found.lower is None or found.upper is None:
        return found
    return msgspec.structs.replace(found, lower=max(found.lower, 0.0), upper=min(found.upper, 1.0))


def mean(sums: Sums, *, logarithms: bool = False) -> Estimate:
    """The mean of a measured value. logarithms: the values are logarithms, and their geometric mean is returned."""
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
    """Variance of x / n; 0 with one session."""
    if sums.units < 2:
        return 0.0
    squares = max(sums.xx - 2 * value * sums.xn + value * value * sums.nn, 0.0)
    return sums.units / (sums.units - 1) * squares / (sums.n * sums.n)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _nothing(sums: Sums) -> Estimate:
    return Estimate(None, None, None, 0, sums.units)
