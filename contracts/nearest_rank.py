"""Percentiles by nearest rank: each is one of the values, and so the same wherever it is computed."""

from __future__ import annotations

from collections.abc import Sequence


def nearest_rank(ordered: Sequence[float], percent: int) -> float | None:
    """The smallest of the values that at least `percent` (1 to 100) per cent of them do not exceed; None for an empty
    list.

    ordered: the values, rising.
    """
    # the rank is computed in whole numbers: 0.95 * 20 is more than 19 in binary, and would be the twentieth
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None
