"""Summarizes many rollouts of one kind for each judge."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from benchmarks.canary_rollouts.rollout import Ending
from evals.score import Score


def rolled_back_minutes(endings: Sequence[Ending]) -> list[float]:
    """Minutes until each rollback, rising; infinite for a rollout that was not rolled back."""
    return sorted(float(one.rolled_back) if one.is_rolled_back and one.rolled_back else math.inf for one in endings)


def at_share(minutes: Sequence[float], share: float) -> float:
    """The minute by which a share was reached: the order statistic of rising minutes."""
    return minutes[max(0, math.ceil(share * len(minutes)) - 1)]


def rolled_back(endings: Sequence[Ending]) -> float:
    """The share that was rolled back."""
    return sum(one.is_rolled_back for one in endings) / len(endings)


def ever_rolled_back(endings: Sequence[Ending]) -> float:
    """The same, including after a promotion, for rollouts that were held until their traffic ended."""
    return sum(one.rolled_back is not None for one in endings) / len(endings)


def promoted(endings: Sequence[Ending]) -> float:
    """The share that reached all traffic."""
    return sum(one.is_promoted for one in endings) / len(endings)


def line(judge: str, endings: Sequence[Ending]) -> str:
    """A row of the table."""
    minutes = rolled_back_minutes(endings)
    to_all = [float(one.promoted) for one in endings if one.is_promoted and one.promoted]
    median_to_all = f"{statistics.median(to_all):.0f} min" if to_all else "-"
    ever = f", {100 * ever_rolled_back(endings):.1f} % in the end" if _was_held(endings) else ""
    return (
        f"| {judge} | {_share(sum(one.is_rolled_back for one in endings), len(endings))}{ever} "
        f"| {_minutes(at_share(minutes, 0.5))} | {_minutes(at_share(minutes, 0.95))} "
        f"| {_share(len(to_all), len(endings))} | {median_to_all} |"
    )


def _was_held(endings: Sequence[Ending]) -> bool:
    return any(one.rolled_back is not None and one.promoted is not None for one in endings)


def _share(right: int, items: int) -> str:
    low, high = Score("", "", right, items, 0.0).interval
    return f"{100 * right / items:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _minutes(minutes: float) -> str:
    return "-" if math.isinf(minutes) else f"{minutes:.0f} min"
