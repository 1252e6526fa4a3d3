"""Budgets and burn rates against sums over single requests."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from control.slo.budget import BUDGET_WINDOW, PAIRS, WINDOWS, BurnPair, Count, budget_left, burn_rate, burning, too_few


@pytest.mark.parametrize("seed", range(20))
def test_rates_and_budgets_equal_a_sum_over_single_requests(seed: int) -> None:
    choose = random.Random(seed)
    allowed = choose.choice((Fraction(1, 100), Fraction(5, 100), Fraction(1, 10_000), Fraction(1, 2)))
    target = float(1 - allowed)
    good = [choose.random() < choose.choice((0.9, 0.99, 1.0)) for _ in range(choose.randrange(1, 2_000))]
    budget = Fraction(0)  # each request brings its part, each bad one takes a whole
    for each in good:
        budget += allowed - (not each)
    count = Count(len(good), sum(good))
    assert budget_left(count, target) == pytest.approx(float(budget / (allowed * len(good))), abs=1e-9)
    assert burn_rate(count, target) == pytest.approx(float(Fraction(len(good) - sum(good), len(good)) / allowed))


def test_nothing_is_known_without_requests() -> None:
    assert (Count(0, 0).attainment, burn_rate(Count(0, 0), 0.99), budget_left(Count(0, 0), 0.99)) == (None, None, None)


@pytest.mark.parametrize(
    ("long", "short", "expected"),
    [
        (Count(100, 85), Count(100, 85), True),
        (Count(100, 85), Count(100, 86), False),  # it is over
        (Count(100, 86), Count(100, 85), False),  # it does not matter yet
        (Count(100, 85), Count(0, 0), False),
        (Count(60, 50), Count(6, 5), True),
        (Count(54, 45), Count(6, 5), False),  # nine bad ones may be anything
    ],
)
def test_an_alert_needs_both_windows_and_more_than_a_few_bad_requests(
    long: Count, short: Count, expected: bool
) -> None:
    assert burning(BurnPair("1h", "5m", 14.4), {"1h": long, "5m": short}, 0.99) is expected


def test_a_few_bad_requests_that_burn_fast_are_told_apart_from_none() -> None:
    pair, few, many = BurnPair("1h", "5m", 14.4), Count(54, 45), Count(60, 50)
    fast, slow = Count(6, 5), Count(100, 99)
    assert too_few(pair, {"1h": few, "5m": fast}, 0.99)
    assert not too_few(pair, {"1h": few, "5m": slow}, 0.99)
    assert not too_few(pair, {"1h": many, "5m": fast}, 0.99), "that is an alert"


def test_the_pairs_are_those_of_the_workbook() -> None:
    assert [(each.long, each.short, each.threshold) for each in PAIRS] == [
        ("1h", "5m", 14.4), ("6h", "30m", 6.0), ("1d", "2h", 3.0), ("3d", "6h", 1.0),
    ]  # fmt: skip
    assert all(WINDOWS[each.long] > WINDOWS[each.short] for each in PAIRS)
    assert list(WINDOWS.values()) == sorted(WINDOWS.values())
    assert WINDOWS["28d"] == BUDGET_WINDOW
