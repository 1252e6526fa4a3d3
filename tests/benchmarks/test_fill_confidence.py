"""The least confidence of a model's completions: chosen on some files, told of others."""

from __future__ import annotations

import pytest

from benchmarks.fill_confidence import Figures, Row, choose, figures, halves


def rows(*confidences_of: tuple[float, bool]) -> list[Row]:
    return [Row(number, f"f{number}", exact, 5, sure) for number, (sure, exact) in enumerate(confidences_of)]


SOME = rows((0.2, False), (0.4, True), (0.4, False), (0.6, False), (0.8, True), (0.9, True))


def test_the_lowest_threshold_is_chosen_from_which_on_the_shown_are_right_often_enough() -> None:
    assert figures(SOME, 0.5) == Figures(0.5, 3 / 6, 2 / 3, 2 / 3)
    assert choose(SOME, 0.6) == 0.25
    assert choose(SOME, 0.7) == 0.65
    assert choose(SOME, 0.0) == 0.0
    assert choose(rows((0.9, False), (0.2, True)), 0.5) is None, "the surest are wrong"


def test_a_completion_without_text_is_no_completion() -> None:
    empty = Row(9, "f", False, 0, 1.0)
    assert figures([*SOME, empty], 0.5) == figures(SOME, 0.5)


def test_no_file_is_on_both_sides() -> None:
    many = [Row(number, f"f{number % 50}", False, 1, 0.5) for number in range(200)]
    chosen_on, checked_on = halves(many)
    assert not {row.group for row in chosen_on} & {row.group for row in checked_on}
    assert len(chosen_on) + len(checked_on) == 200
    assert min(len(chosen_on), len(checked_on)) == pytest.approx(100, abs=40)
