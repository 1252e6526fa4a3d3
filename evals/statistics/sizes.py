"""How many items a comparison takes, before any is drawn and while it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evals.statistics.distributions import normal_quantile, normal_tail
from evals.statistics.looks import levels, looks


def half_width(items: float, variance: float, level: float, rare: float) -> float:
    """How far the lower bound will lie below the mean of so many items.

    variance: of an item's difference, clusters included. rare: how often the loss that nothing has shown yet is
    counted, the design effect (see `gate.SliceRule.correlation`).
    """
    unseen = -math.expm1(math.log(level) / items) * rare
    return math.hypot(_upper(level) * math.sqrt(variance / items), unseen)


def passing_probability(items: int, variance: float, level: float, rare: float, margin: float) -> float:
    """The probability that an equal candidate is shown, by one look at so many items, not to be worse by the margin."""
    room = margin - half_width(items, variance, level, rare)
    if variance <= 0.0:
        return 1.0 if room > 0.0 else 0.0
    return normal_tail(-room / math.sqrt(variance / items))


def items_needed(variance: float, margin: float, level: float, power: float, rare: float = 1.0) -> int:
    """The fewest items at which `passing_probability` is `power`.

    variance: of independent items the share that flips. Where nothing flips it is how many items must show nothing:
    log(level) / log(1 - margin), a hundred and fifty for two points at 5 %.
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
    """The margin that a slice cannot pass below, though no answer differs: the lowest bound of all looks.

    counts, spent: items and level of each look. alike: probability that two items are of one cluster.
    """
    return min(
        -math.expm1(math.log(level) / items) * (1.0 + (items - 1.0) * alike * correlation)
        for items, level in zip(counts, spent, strict=True)
    )


def least_budget(first_look: int, alpha: float, margin: float, most: int) -> int | None:
    """A budget at which a slice of independent items whose answers are all equal passes, and one item less would not.

    None: it does not pass by `most` items.
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
