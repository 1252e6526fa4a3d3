"""Simulated rollouts repeat, are what they say, and rivals are played by their rules."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.canary import figures, missed
from benchmarks.canary_rollouts.picture import draw as picture
from benchmarks.canary_rollouts.rivals import ARGO, FLAGGER, judge
from benchmarks.canary_rollouts.rollout import OURS, Ending, play
from benchmarks.canary_rollouts.summary import at_share, line, promoted, rolled_back, rolled_back_minutes
from benchmarks.canary_rollouts.traffic import (
    ITL_MEDIAN_MS,
    TTFT_MEDIAN_MS,
    Change,
    Floats,
    Stream,
    Traffic,
    baseline,
    draw,
    p99_ms,
)  # fmt: skip

SMALL = Traffic("small", (2.0,), 0.5)


def steady(minutes: int, ttft_ms: float, *, failed_every: int = 0) -> Stream:
    """One request a second of the candidate."""
    count = 60 * minutes
    at = np.arange(count)
    second: Floats = at + np.float64(0.5)
    return Stream(
        second=second, candidate=np.ones(count, bool), unit=at, level=np.zeros(count),
        ttft_ms=np.full(count, ttft_ms), itl_ms=np.full(count, ITL_MEDIAN_MS),
        failed=at % failed_every == 0 if failed_every else np.zeros(count, bool), good=np.ones(count, bool),
    )  # fmt: skip


def test_a_seed_is_a_rollout() -> None:
    slow = Change("slow", ttft=1.5)
    first = play(SMALL, slow, 7, rivals=(FLAGGER, ARGO))
    assert first == play(SMALL, slow, 7, rivals=(FLAGGER, ARGO))
    assert first[OURS].is_rolled_back
    assert first[OURS].metrics[0] == "ttft"


def test_failing_releases_are_rolled_back_for_their_errors() -> None:
    assert play(SMALL, Change("failing", errors=0.1), 3)[OURS].metrics[0] == "errors"


def test_what_is_drawn_is_what_was_said() -> None:
    traffic = Traffic("", (10.0,), 1.0)
    stream = draw(traffic, Change("", tail=1.1, errors=0.01), np.random.default_rng(1))
    of = stream.candidate
    assert of.mean() == pytest.approx(0.5, abs=0.02)
    assert of.sum() / 3_600 == pytest.approx(10, rel=0.05)
    p99 = p99_ms(TTFT_MEDIAN_MS)
    assert np.quantile(stream.ttft_ms[~of], 0.99) == pytest.approx(p99, rel=0.05)
    assert np.quantile(stream.ttft_ms[of], 0.99) == pytest.approx(1.1 * p99, rel=0.05)
    assert np.quantile(stream.ttft_ms[of], 0.9) == pytest.approx(np.quantile(stream.ttft_ms[~of], 0.9), rel=0.03)
    assert stream.failed[of].mean() - stream.failed[~of].mean() == pytest.approx(0.01, abs=0.003)
    assert np.quantile(baseline(traffic, 20_000, np.random.default_rng(2))[0], 0.99) == pytest.approx(p99, rel=0.05)
    arms_of_units = {(unit, arm) for unit, arm in zip(stream.unit.tolist(), of.tolist(), strict=True)}
    assert len(arms_of_units) == len({unit for unit, _ in arms_of_units})


def test_flagger_rolls_back_at_its_tenth_failed_check_and_promotes_at_its_tenth_passed_one() -> None:
    limit_ms = 1.1 * p99_ms(TTFT_MEDIAN_MS)
    assert judge(FLAGGER, steady(30, limit_ms + 1), held=False) == (10, None)
    assert judge(FLAGGER, steady(30, limit_ms - 1), held=False) == (None, 10)
    assert judge(FLAGGER, steady(30, 10.0, failed_every=50), held=False) == (10, None)


def test_argo_aborts_at_its_fourth_failure_and_else_goes_by_the_clock() -> None:
    limit_ms = 1.1 * p99_ms(TTFT_MEDIAN_MS)
    assert judge(ARGO, steady(60, limit_ms + 1), held=False) == (20, None)
    assert judge(ARGO, steady(60, limit_ms - 1), held=False) == (None, 50)


def test_a_rollout_that_was_held_ends_with_what_came_first() -> None:
    late = Ending(rolled_back=90, promoted=30)
    assert (late.is_rolled_back, late.is_promoted) == (False, True)
    endings = [late, Ending(5, None), Ending(None, None), Ending(7, 7)]
    assert (rolled_back(endings), promoted(endings)) == (0.5, 0.25)
    assert at_share(rolled_back_minutes(endings), 0.5) == 7
    assert "75.0 % in the end" in line(OURS, endings)


def test_what_was_not_measured_is_a_missed_bound() -> None:
    assert figures({}) == {
        "false_rollback": None, "false_promotion": None, "median_minutes_1rps": None, "p95_minutes_10rps": None,
        "tail_median_minutes_1rps": None, "tail_p95_minutes_10rps": None,
    }  # fmt: skip
    assert len(missed(figures({}))) == 6


def test_the_picture_has_a_curve_for_each_judge() -> None:
    pytest.importorskip("matplotlib")
    endings = {OURS: [Ending(1, None)], "Flagger": [Ending(None, 1)]}
    drawn = picture({("1 rps", 1.0): endings, ("1 rps", 1.3): endings})
    assert drawn == picture({("1 rps", 1.0): endings, ("1 rps", 1.3): endings})
    assert "1 rps: rolled back/Slipstream" in drawn
    assert "1 rps: promoted to all traffic/Flagger" in drawn
