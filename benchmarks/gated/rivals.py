"""Other rules, for the same answers: lm-eval's comparison, a paired test with repeated looks, and the textbook's number
of items."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evals.gate import Decision, PairedItem, SliceRule
from evals.statistics.distributions import normal_quantile, normal_tail
from evals.statistics.looks import looks


def unpaired(items: Sequence[PairedItem], rule: SliceRule) -> Decision:
    """lm-eval's rule after the whole budget: a lower score fails if the two-sided p < alpha; all else passes."""
    asked = items[: rule.budget]
    right = (sum(item.baseline == 1.0 for item in asked), sum(item.candidate == 1.0 for item in asked))
    return Decision.FAIL if right[1] < right[0] and unpaired_p(right, len(asked)) < rule.alpha else Decision.PASS


def looked_at_repeatedly(items: Sequence[PairedItem], rule: SliceRule) -> Decision:
    """A paired test for one look at independent items, repeated until it decides."""
    z = normal_quantile(1.0 - rule.alpha)
    for count in looks(rule.first_look, rule.budget):
        differences = [item.candidate - item.baseline for item in items[:count]]
        mean = sum(differences) / count
        error = math.sqrt(sum((value - mean) ** 2 for value in differences) / (count - 1) / count)
        if mean - z * error > -rule.margin:
            return Decision.PASS
        if mean + z * error < 0.0:
            return Decision.FAIL
    return Decision.INCONCLUSIVE


def unpaired_p(right: tuple[int, int], items: int) -> float:
    """Two-sided p-value of lm-eval's comparison of two runs, which ignores that both answered the same items.

    right: the right answers of baseline and candidate. Z = (a1 - a2) / sqrt(se1^2 + se2^2), each the standard error of
    a sample mean.
    """
    shares = [one / items for one in right]
    errors = [share * (1.0 - share) / (items - 1) for share in shares]
    if not sum(errors):
        return 1.0
    return 2.0 * normal_tail(abs(shares[0] - shares[1]) / math.sqrt(sum(errors)))


def fixed_items(flip_share: float, margin: float, alpha: float, power: float) -> int:
    """The number of items at which one look shows with a probability of `power` that an equal candidate is not worse by
    the margin.

    flip_share: the share of independent items whose verdict differs between equals. The textbook's formula,
    flip_share * (z_alpha + z_power)^2 / margin^2, allows for neither clusters nor repeated looks. Without flips it
    gives 0, which is wrong: see `items_needed` in evals/statistics/sizes.py.
    """
    return math.ceil(flip_share * (normal_quantile(1.0 - alpha) + normal_quantile(power)) ** 2 / margin**2)
