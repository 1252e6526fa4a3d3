"""The wealth of a gambler who bets against a null hypothesis: the e-value of every test of the judge.

Each outcome has a gain whose expectation is at most 0 if the null holds. A purse that stakes a share s of itself is
multiplied by 1 + s * gain and, by Ville's inequality, ever reaches 1/alpha with probability at most alpha. The best
stake is unknown, so the money starts equally divided over `STAKES`, a mixture (Robbins 1970; Ramdas et al. 2023,
section 4), and the purse is the sum.

Decimal arithmetic rounds `ln` and `exp` correctly by definition, so the same counts give the same digits on every
machine. Binary `math.log` does not guarantee that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from decimal import Context, Decimal

STAKES = tuple(Decimal(stake) for stake in ("0.05", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9"))
DIGITS = Context(prec=28, Emax=999_999_999, Emin=-999_999_999)
_SHOWN = Context(prec=6)
_TOO_LITTLE = 70
"""A term whose logarithm is this much below the largest does not change a digit of the sum."""


def wealth(outcomes: Iterable[tuple[Decimal, int]]) -> Decimal:
    """The purse, from 1, after the given number of outcomes of each gain; gains must exceed -1/0.9.

    Exact up to 28 digits; the order of the outcomes does not matter.
    """
    rows = [(_growth(gain), count) for gain, count in outcomes if count]
    logarithms = []
    for stake in range(len(STAKES)):
        logarithm = Decimal(0)
        for growth, count in rows:
            logarithm = DIGITS.fma(growth[stake], count, logarithm)
        logarithms.append(logarithm)
    least = DIGITS.subtract(max(logarithms), _TOO_LITTLE)
    total = Decimal(0)
    for logarithm in logarithms:
        if logarithm > least:
            total = DIGITS.add(total, DIGITS.exp(logarithm))
    return DIGITS.divide(total, len(STAKES))


def inverse(alpha: float) -> Decimal:
    """1/alpha, which the purse must reach."""
    return DIGITS.divide(1, Decimal(alpha))


def log10(value: Decimal) -> Decimal:
    """The decimal logarithm of a purse, for display: six digits."""
    return _SHOWN.log10(value)


@functools.lru_cache(maxsize=256)
def _growth(gain: Decimal) -> tuple[Decimal, ...]:
    return tuple(DIGITS.ln(DIGITS.fma(stake, gain, Decimal(1))) for stake in STAKES)
