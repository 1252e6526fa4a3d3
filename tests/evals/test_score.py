"""A share of right answers comes with how sure it is."""

from __future__ import annotations

import pytest

from evals.score import Score, table


@pytest.mark.parametrize(
    ("right", "items", "low", "high"),
    # Wilson intervals of Newcombe 1998, table I, without continuity correction.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_is_wilsons(right: int, items: int, low: float, high: float) -> None:
    assert Score("x", "", right, items, 0.5).interval == pytest.approx((low, high), abs=5e-5)


def test_a_missed_goal_is_said() -> None:
    shown = table([Score("json", "objects", 180, 200, 0.95), Score("facts", "capitals", 190, 200, 0.95)])
    lines = shown.split("\n")
    assert "| 0.900 |" in lines[2]
    assert "**missed by 0.050**" in lines[2]
    assert lines[3].endswith("| 200 | 0.95 |")


def test_a_slice_without_a_goal_misses_none() -> None:
    assert table([Score("gsm8k", "problems", 0, 3, 0.0)]).endswith("| 3 | none |")


def test_scores_in_part_are_summed() -> None:
    score = Score("ruler-vt-1000", "variables", 2.5, 5, 0.0)
    assert score.share == 0.5
    assert score.interval[0] < 0.5 < score.interval[1]
