"""The bound is one: beside closed forms, and above what the judge makes of the same change."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from benchmarks.canary_rollouts.bound import Bound
from benchmarks.canary_rollouts.traffic import SIGMA, Change

TAIL = Change(tail=1.3)


def test_without_a_change_and_a_tolerance_nothing_grows() -> None:
    bound = Bound(Change(), 0.0, 1.0)
    assert bound.growth_per_minute == pytest.approx(0, abs=1e-9)
    assert bound.most_by(20, 0.05) <= 0.06


def test_of_a_shifted_lognormal_it_is_the_divergence_between_both_and_their_mixture() -> None:
    """The candidate's part rises by itself, so nothing is pooled: Jensen and Shannon's, by the midpoint rule."""
    shift = math.log(1.3) / SIGMA
    of, step = NormalDist(), 0.001
    divergence = 0.0
    for at in range(-6_000, 8_000):
        place = step * (at + 0.5)
        mine, other = of.pdf(place - shift), of.pdf(place)
        middle = (mine + other) / 2
        divergence += step * (mine * math.log(mine / middle) + other * math.log(other / middle))
    assert Bound(Change(ttft=1.3), 0.0, 1.0).growth_per_minute == pytest.approx(60 * divergence, rel=0.01)


def test_its_power_is_the_normal_approximations_where_there_is_much_evidence() -> None:
    """Evidence of mean m has a variance of about 2 m."""
    bound = Bound(TAIL, 0.1, 10.0)
    mean = 6 * bound.growth_per_minute
    power = 1 - NormalDist().cdf(NormalDist().inv_cdf(0.95) - math.sqrt(2 * mean))
    assert bound.most_by(6, 0.05) == pytest.approx(power, abs=0.03)


def test_who_must_look_every_minute_is_later_than_who_looks_once() -> None:
    bound = Bound(TAIL, 0.1, 1.0)
    earliest = bound.earliest(0.5, 0.05)
    assert bound.most_by(earliest, 0.05) >= 0.5 > bound.most_by(earliest - 1, 0.05)
    assert earliest < bound.gambler(0.5, 0.05, 60) < bound.gambler(0.5, 0.0125, 60)
