"""Differences of two ways on the same items, and how similar two texts are."""

from __future__ import annotations

import functools
import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tools.training.paired import difference, edit_similarity


def naive_distance(one: str, other: str) -> int:
    @functools.cache
    def distance(a: int, b: int) -> int:
        if not a or not b:
            return a + b
        same = one[a - 1] == other[b - 1]
        return min(distance(a - 1, b) + 1, distance(a, b - 1) + 1, distance(a - 1, b - 1) + (not same))

    return distance(len(one), len(other))


@given(st.text("ab ", max_size=9), st.text("ab ", max_size=9))
def test_similarity_is_one_less_the_edits_over_the_longer_length(one: str, other: str) -> None:
    longest = max(len(one), len(other), 1)
    assert edit_similarity(one, other) == pytest.approx(1 - naive_distance(one, other) / longest)
    assert edit_similarity(one, other) == edit_similarity(other, one)


def test_the_lower_bound_holds_in_nineteen_of_twenty_worlds_also_where_groups_go_together() -> None:
    """Files differ by 0.2 around a true gain of 0.1; each has twenty lines. Lines taken as independent would fail."""
    chance = random.Random(3)
    held = naive = 0
    for _ in range(300):
        gains, groups = [], []
        for group in range(40):
            own = 0.1 + chance.gauss(0, 0.2)
            gains += [own + chance.gauss(0, 0.1) for _ in range(20)]
            groups += [group] * 20
        zeros = [0.0] * len(gains)
        held += difference(gains, zeros, groups).lower <= 0.1
        naive += difference(gains, zeros, range(len(gains))).lower <= 0.1
    assert 0.91 <= held / 300 <= 0.99
    assert naive / 300 < 0.8


def test_what_has_no_two_groups_or_no_pairs_says_so() -> None:
    with pytest.raises(ValueError, match="groups"):
        difference([1.0, 0.0], [0.0, 0.0], ["a", "a"])
    with pytest.raises(ValueError):
        difference([1.0], [0.0, 0.0], ["a"])
