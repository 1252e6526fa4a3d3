"""The purse is what the formula says: beside closed forms, and with every outcome in whatever order."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.releases.judge.wealth import STAKES, inverse, wealth

ONE = Decimal(1)


def by_steps(outcomes: list[Fraction]) -> Fraction:
    """The plain reference: a purse for each stake, multiplied after every outcome, exactly."""
    purses = [Fraction(1)] * len(STAKES)
    for gain in outcomes:
        purses = [purse * (1 + Fraction(stake) * gain) for purse, stake in zip(purses, STAKES, strict=True)]
    return sum(purses, Fraction(0)) / len(STAKES)


@given(st.lists(st.sampled_from(["1", "-1", "0.5", "-0.25", "-0.00025"]), max_size=60))
def test_it_is_the_product_of_every_single_bet(gains: list[str]) -> None:
    counted = [(Decimal(gain), gains.count(gain)) for gain in dict.fromkeys(gains)]
    assert float(wealth(counted)) == pytest.approx(float(by_steps([Fraction(gain) for gain in gains])), rel=1e-12)


@pytest.mark.parametrize("coins", [1, 8])
@pytest.mark.parametrize("gain", ["1", "0.5"])
def test_over_all_fair_coins_its_mean_is_one(coins: int, gain: str) -> None:
    """What makes it an e-value, by all 2^n sequences."""
    total = sum(
        wealth(((Decimal(gain), sum(sides)), (-Decimal(gain), coins - sum(sides))))
        for sides in itertools.product((0, 1), repeat=coins)
    )
    assert float(total) / 2**coins == pytest.approx(1, rel=1e-12)


def beta_mixture(candidate: int, control: int) -> float:
    """The continuous twin: the likelihood ratio of coins to fair ones, averaged over p in (1/2, 1), in closed form:
    sum of binomials(n + 1, j) for j up to the candidate's, over (n + 1) binomial(n, candidate)."""
    coins = candidate + control
    tail = sum(math.comb(coins + 1, j) for j in range(candidate + 1))
    return float(Fraction(tail, (coins + 1) * math.comb(coins, candidate)))


@pytest.mark.parametrize(("candidate", "control"), [(10, 0), (20, 5), (40, 15), (120, 70), (600, 480), (1200, 1000)])
def test_ten_stakes_do_as_well_as_all_of_them(candidate: int, control: int) -> None:
    """Evidence that decides is within half an order of magnitude of the truncated-Beta mixture's."""
    ours = float(wealth(((ONE, candidate), (-ONE, control))))
    assert abs(math.log10(ours / beta_mixture(candidate, control))) < 0.5


def test_a_purse_of_a_million_outcomes_neither_overflows_nor_loses_digits() -> None:
    value = wealth(((ONE, 700_000), (-ONE, 300_000)))
    reference = max(700_000 * (ONE + stake).ln() + 300_000 * (ONE - stake).ln() for stake in STAKES)
    assert float(value.ln()) == pytest.approx(float(reference) - math.log(len(STAKES)), abs=1e-9)
    assert wealth(((ONE, 0), (-ONE, 1_000_000))) < inverse(0.5)


def test_its_digits_are_fixed() -> None:
    """On any machine, whatever its mathematics library: recorded once, equal for ever."""
    value = wealth(((ONE, 37), (-ONE, 12), (Decimal("-0.00025"), 4000)))
    assert str(value) == "150.7992743621741339118497595"
    exact = by_steps([Fraction(1)] * 37 + [Fraction(-1)] * 12 + [Fraction("-0.00025")] * 400)
    assert abs(Fraction(wealth(((ONE, 37), (-ONE, 12), (Decimal("-0.00025"), 400)))) / exact - 1) < Fraction(1, 10**22)
