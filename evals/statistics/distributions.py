"""Quantiles of the binomial, Student's and the normal distribution, by the regularised incomplete beta function.

It is plain Python, since workers judge without numpy. Tests compare it with mpmath.
"""

from __future__ import annotations

import math
from statistics import NormalDist

_NORMAL = NormalDist()
_TINY = 1e-300
_TERMS = 10_000
_STEPS = 500


def normal_quantile(probability: float) -> float:
    """The value below which the standard normal distribution has this probability."""
    return _NORMAL.inv_cdf(probability)


def normal_tail(z: float) -> float:
    """The probability of the standard normal distribution above z."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b). Source: DLMF 8.17.22, continued fraction by Lentz's method.

    Raises ValueError for a or b that is not positive.
    """
    if a <= 0.0 or b <= 0.0:
        raise ValueError(f"the beta distribution's parameters must be above 0, got {a} and {b}")
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - beta_cdf(1.0 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    value = 1.0
    c, d = 1.0, 0.0
    for term in range(1, _TERMS):
        half = term // 2
        if term % 2:
            step = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1.0))
        else:
            step = half * (b - half) * x / ((a + 2 * half - 1.0) * (a + 2 * half))
        d = 1.0 / _away_from_zero(1.0 + step * d)
        c = _away_from_zero(1.0 + step / c)
        value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def student_quantile(upper_tail: float, freedom: float) -> float:
    """The value above which Student's distribution has this probability, 0 < upper_tail <= 0.5."""
    _require_tail(upper_tail)
    if upper_tail == 0.5:
        return 0.0
    # from the tail's own beta function: 1 - cdf would lose the digits of a small tail
    x = _beta_quantile(2.0 * upper_tail, 0.5 * freedom, 0.5)
    return math.sqrt(freedom * (1.0 - x) / x)


def binomial_upper(successes: float, trials: float, tail: float) -> float:
    """The largest share for which so few successes still have the probability `tail`: exact, one-sided.

    Without a success, it is 1 - tail ** (1 / trials). Successes need not be whole. Source: Clopper and Pearson 1934.
    """
    _require_tail(tail)
    if successes >= trials:
        return 1.0
    if successes <= 0:
        return -math.expm1(math.log(tail) / trials)
    return _beta_quantile(1.0 - tail, successes + 1.0, trials - successes)


def binomial_lower(successes: float, trials: float, tail: float) -> float:
    """The smallest share for which so many successes still have the probability `tail`: see `binomial_upper`."""
    return 1.0 - binomial_upper(trials - successes, trials, tail)


def _beta_quantile(probability: float, a: float, b: float) -> float:
    """The x at which `beta_cdf` is `probability`: by Newton's steps, or bisection if one would leave the bracket."""
    low, high = 0.0, 1.0
    x = a / (a + b)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    for _ in range(_STEPS):
        excess = beta_cdf(x, a, b) - probability
        low, high = (low, x) if excess > 0.0 else (x, high)
        density = math.exp(log_front + (a - 1.0) * math.log(x) + (b - 1.0) * math.log1p(-x))
        following = x - excess / density if density > 0.0 else low
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(following - x) <= 1e-14 * x:
            break
        x = following
    return x


def _require_tail(tail: float) -> None:
    if not 0.0 < tail <= 0.5:
        raise ValueError(f"a tail's probability must be above 0 and at most 0.5, got {tail}")
