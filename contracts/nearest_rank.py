"""Percentiles by nearest rank: each is one of the values, so all code computes the same one."""

from __future__ import annotations

from collections.abc import Sequence


def nearest_rank(ordered: Sequence[float], percent: int) -> float | None:
    """The smallest value that at least `percent` (1 to 100) per cent of the values do not exceed; None for no values.

    ordered: the values in ascending order.
    """
    # integer arithmetic: in floating point, 0.95 * 20 is more than 19 and would select the twentieth value
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None
