"""Distributions in plain Python are those of exact sums and of printed tables."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from evals.statistics.distributions import (
    beta_cdf,
    binomial_lower,
    binomial_upper,
    normal_quantile,
    normal_tail,
    student_quantile,
)


@pytest.mark.parametrize(
    ("x", "a", "b"),
    [
        ("1/2", 3, 4),
        ("1/50", 1, 200),
        ("93/100", 800, 40),
        ("1/1000000", 2, 4),
        ("19/20", 380, 30),
        ("1/100", 60, 2000),
    ],
)
def test_the_beta_distribution_is_a_binomials_tail(x: str, a: int, b: int) -> None:
    share, trials = Fraction(x), a + b - 1
    of, whole = share.numerator, share.denominator
    ways = sum(math.comb(trials, k) * of**k * (whole - of) ** (trials - k) for k in range(a, trials + 1))
    exact = Fraction(ways, whole**trials)
    assert beta_cdf(float(share), a, b) == pytest.approx(float(exact), rel=1e-10)


@pytest.mark.parametrize("x", [0.001, 0.3, 0.9])
def test_of_halves_the_beta_distribution_is_the_arcsine(x: float) -> None:
    assert beta_cdf(x, 0.5, 0.5) == pytest.approx(2 / math.pi * math.asin(math.sqrt(x)), rel=1e-12)


def test_beyond_its_ends_the_beta_distribution_is_certain() -> None:
    assert (beta_cdf(-0.1, 2.0, 3.0), beta_cdf(1.1, 2.0, 3.0)) == (0.0, 1.0)
    with pytest.raises(ValueError, match="above 0, got 0"):
        beta_cdf(0.5, 0.0, 1.0)


def student_cdf(t: float, freedom: float) -> float:
    """The lower tail of Student's distribution with so many degrees of freedom, which need not be whole."""
    tail = 0.5 * beta_cdf(freedom / (freedom + t * t), 0.5 * freedom, 0.5)
    return tail if t < 0 else 1.0 - tail


# the tables at the end of every textbook
@pytest.mark.parametrize(
    ("tail", "freedom", "quantile"),
    [(0.05, 1, 6.314), (0.05, 9, 1.833), (0.025, 4, 2.776), (0.005, 30, 2.750), (0.0005, 5, 6.869)],
)
def test_students_quantiles_are_the_tables(tail: float, freedom: float, quantile: float) -> None:
    found = student_quantile(tail, freedom)
    assert found == pytest.approx(quantile, abs=5e-4)
    assert 1.0 - student_cdf(found, freedom) == pytest.approx(tail, rel=1e-9)
    assert student_cdf(-found, freedom) == pytest.approx(tail, rel=1e-9)


def test_with_much_freedom_student_is_normal() -> None:
    assert student_quantile(0.01, 1e7) == pytest.approx(normal_quantile(0.99), rel=1e-6)
    assert normal_tail(normal_quantile(0.99)) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("successes", "trials", "upper"),
    # one-sided 97.5 % limits of Newcombe 1998, table I, method 5 (Clopper and Pearson)
    [(81, 263, 0.3676), (15, 148, 0.1617), (0, 20, 0.1684), (1, 29, 0.1776)],
)
def test_binomial_limits_are_clopper_and_pearsons(successes: int, trials: int, upper: float) -> None:
    assert binomial_upper(successes, trials, 0.025) == pytest.approx(upper, abs=5e-5)
    assert 1.0 - binomial_lower(trials - successes, trials, 0.025) == pytest.approx(upper, abs=5e-5)


def test_nothing_seen_in_so_many_is_the_rule_of_three() -> None:
    assert binomial_upper(0, 300, 0.05) == pytest.approx(3 / 300, rel=0.01)
    assert binomial_upper(0, 300, 0.05) == pytest.approx(1.0 - math.exp(math.log(0.05) / 300))
    assert binomial_upper(300, 300, 0.05) == 1.0


def test_a_tail_is_a_probability() -> None:
    with pytest.raises(ValueError, match="above 0 and at most"):
        student_quantile(0.7, 3)
