"""The ratio of two costs that were measured in turn, with its interval."""

from __future__ import annotations

import math
import statistics

Z = 1.96
"""The normal quantile of a 95 % interval."""


def compared(plain_us: list[float], other_us: list[float]) -> tuple[float, float, float]:
    """The median of the rounds' ratios and the bounds of its interval, by rank, so that outliers of a busy machine do
    not move them. Other work of the machine in a round affects both sides."""
    ratios = sorted(other / plain for plain, other in zip(plain_us, other_us, strict=True))
    middle, reach = len(ratios) / 2, Z * math.sqrt(len(ratios)) / 2
    low, high = ratios[max(0, math.floor(middle - reach))], ratios[min(len(ratios) - 1, math.ceil(middle + reach))]
    return round(statistics.median(ratios), 4), round(low, 4), round(high, 4)
