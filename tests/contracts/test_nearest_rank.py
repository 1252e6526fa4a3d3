"""Percentiles against their definition, counted out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.nearest_rank import nearest_rank


def counted_out(values: list[int], percent: int) -> int:
    """The smallest value that so many do not exceed."""
    return min(each for each in values if sum(v <= each for v in values) * 100 >= percent * len(values))


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=200), st.integers(1, 100))
def test_it_is_the_smallest_value_that_so_many_do_not_exceed(values: list[int], percent: int) -> None:
    assert nearest_rank(sorted(values), percent) == counted_out(values, percent)


@pytest.mark.parametrize("percent", [1, 50, 95, 99, 100])
def test_of_a_hundred_values_it_is_the_one_of_that_number(percent: int) -> None:
    assert nearest_rank(range(1, 101), percent) == percent


def test_of_nothing_there_is_none() -> None:
    assert nearest_rank([], 99) is None
