"""The judge's operating curve: a short piece of it always, and all of it at night.

Seeds are fixed, so the short piece always comes to the same. It is of the policy as deployed, which errs more seldom
than it may; `tests/control/releases/judge/test_error_rates.py` is where nothing is tolerated.
"""

from __future__ import annotations

import dataclasses
import math
import sys

import pytest

from benchmarks import canary, eval_gate
from benchmarks.canary import (
    AT_MARGIN,
    ERRORS_AT_MARGIN,
    FAILING,
    GAPS_AT_MARGIN,
    GOODPUT_AT_MARGIN,
    ONE,
    SLOW,
    TAIL,
    TAIL_AT_MARGIN,
    TEN,
    TEN_CLUSTERED,
    UNCHANGED,
)  # fmt: skip
from benchmarks.canary_rollouts.rollout import OURS, Ending, play
from benchmarks.canary_rollouts.summary import at_share, rolled_back_minutes
from benchmarks.canary_rollouts.traffic import Change, Traffic

FIRST_SEED = 2_000


def endings(traffic: Traffic, change: Change, count: int) -> list[Ending]:
    return [play(traffic, change, FIRST_SEED + number)[OURS] for number in range(count)]


@pytest.mark.parametrize("traffic", [TEN, TEN_CLUSTERED], ids=["alike", "clustered"])
def test_unchanged_releases_are_not_rolled_back(traffic: Traffic) -> None:
    assert not any(one.is_rolled_back for one in endings(dataclasses.replace(traffic, hours=0.4), UNCHANGED, 4))


@pytest.mark.parametrize("change", [AT_MARGIN, TAIL_AT_MARGIN, ERRORS_AT_MARGIN, GAPS_AT_MARGIN, GOODPUT_AT_MARGIN])
def test_releases_at_the_margin_are_not_promoted(change: Change) -> None:
    assert not any(one.is_promoted for one in endings(TEN, change, 2))


@pytest.mark.parametrize(
    ("traffic", "change", "count", "share", "minutes"),
    [
        pytest.param(ONE, SLOW, 41, 0.5, 20, marks=pytest.mark.nightly),
        pytest.param(ONE, FAILING, 41, 0.5, 25, marks=pytest.mark.nightly),
        (TEN, SLOW, 7, 1.0, 10),
        (TEN, FAILING, 7, 1.0, 10),
        (TEN, TAIL, 7, 0.5, 20),
    ],
)
def test_worse_ones_are_rolled_back_in_time(
    traffic: Traffic, change: Change, count: int, share: float, minutes: int
) -> None:
    by = at_share(rolled_back_minutes(endings(traffic, change, count)), share)
    assert not math.isinf(by)
    assert by <= minutes


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3_600)
@pytest.mark.parametrize("benchmark", [canary, eval_gate])
def test_every_promised_bound_is_kept(
    benchmark: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole benchmark, whose `--check` ends with an error when one is not."""
    monkeypatch.setattr(sys, "argv", ["benchmark", "--check"])
    with capsys.disabled():  # its table is the night's record
        benchmark.main()  # type: ignore[attr-defined]
