"""How evenly requests arrive: measures of burstiness that are 1 for a Poisson process of a steady rate."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence

import msgspec

MIN_WINDOWS = 10
"""Fewer windows do not show how counts vary."""


class Burstiness(msgspec.Struct, frozen=True):
    """A measure is None for too few requests or too short a time."""

    rate: float | None
    """Requests per second on average, from the first to the last."""
    interarrival_cv: float | None
    """Standard deviation of the times between two arrivals over their mean."""
    dispersion_1s: float | None
    """Variance of the number of arrivals in a second over its mean: above 1, they come in bursts."""
    dispersion_60s: float | None
    """The same for minutes, which shows how much the rate itself changes."""
    busiest_minute: int
    """Largest number of arrivals in a clock minute."""


def burstiness(at_s: Sequence[float]) -> Burstiness:
    """at_s: times of arrival, rising."""
    apart = [later - earlier for earlier, later in itertools.pairwise(at_s)]
    lasted_s = at_s[-1] - at_s[0] if at_s else 0.0
    mean = statistics.fmean(apart) if apart else 0.0
    return Burstiness(
        rate=len(apart) / lasted_s if lasted_s else None,
        interarrival_cv=statistics.pstdev(apart) / mean if len(apart) > 1 and mean else None,
        dispersion_1s=dispersion(at_s, 1.0),
        dispersion_60s=dispersion(at_s, 60.0),
        busiest_minute=max(Counter(math.floor(each / 60) for each in at_s).values(), default=0),
    )


def dispersion(at_s: Sequence[float], window_s: float) -> float | None:
    """Index of dispersion of the counts in whole windows from the first arrival on (Cox and Lewis, 1966)."""
    windows = int((at_s[-1] - at_s[0]) / window_s) if at_s else 0
    if windows < MIN_WINDOWS:
        return None
    counts = Counter(int((each - at_s[0]) / window_s) for each in at_s)
    numbers = [counts[window] for window in range(windows)]
    mean = statistics.fmean(numbers)
    return statistics.pvariance(numbers, mean) / mean if mean else None
