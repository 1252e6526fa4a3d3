"""The number of items that a comparison needs, before any is drawn and while it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evals.statistics.distributions import normal_quantile, normal_tail
from evals.statistics.looks import levels, looks


def half_width(items: float, variance: float, level: float, rare: float) -> float:
    """Distance of the lower bound below the mean of a number of items.

    variance: of an item's difference, including clusters. rare: factor of the loss that no item has shown yet, the
    design effect (see `gate.SliceRule.correlation`).
    """
    unseen = -math.expm1(math.log(level) / items) * rare
    return math.hypot(_upper(level) * math.sqrt(variance / items), unseen)


def passing_probability(items: int, variance: float, level: float, rare: float, margin: float) -> float:
    """The probability that one look at the items proves an equal candidate not to be worse by the margin."""
    room = margin - half_width(items, variance, level, rare)
    if variance <= 0.0:
        return 1.0 if room > 0.0 else 0.0
    return normal_tail(-room / math.sqrt(variance / items))


def items_needed(variance: float, margin: float, level: float, power: float, rare: float = 1.0) -> int:
    """The fewest items at which `passing_probability` is `power`.

    variance: for independent items, the share that flips. If nothing flips, so many items must show nothing: log(level)
    / log(1 - margin), a hundred and fifty for two points at 5 %.
    """
    few, many = 0, 1
    while passing_probability(many, variance, level, rare, margin) < power:
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        if passing_probability(middle, variance, level, rare, margin) < power:
            few = middle
        else:
            many = middle
    return many


def least_margin(counts: Sequence[int], spent: Sequence[float], alike: float, correlation: float) -> float:
    """The smallest margin with which a slice can pass even if no answer differs: the lowest bound of all looks.

    counts, spent: items and level of each look. alike: probability that two items are in one cluster.
    """
    return min(
        -math.expm1(math.log(level) / items) * (1.0 + (items - 1.0) * alike * correlation)
        for items, level in zip(counts, spent, strict=True)
    )


def least_budget(first_look: int, alpha: float, margin: float, most: int) -> int | None:
    """A budget at which a slice of independent items with equal answers passes, and with one item less would not.

    None if it does not pass with `most` items.
    """

    def passes(budget: int) -> bool:
        counts = looks(first_look, budget)
        return least_margin(counts, levels(alpha, counts), 0.0, 0.0) < margin

    if not passes(most):
        return None
    few, many = 0, most
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if passes(middle) else (middle, many)
    return many


def _upper(tail: float) -> float:
    return -normal_quantile(tail)
