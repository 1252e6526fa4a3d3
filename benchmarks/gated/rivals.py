"""What others decide by, on the same answers: lm-eval's comparison, and a paired test that is looked at repeatedly."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evals.gate import Decision, PairedItem, SliceRule
from evals.statistics.distributions import normal_quantile
from evals.statistics.looks import looks
from evals.statistics.paired import unpaired_p


def unpaired(items: Sequence[PairedItem], rule: SliceRule) -> Decision:
    """lm-eval's rule after the whole budget: worse where two-sided p < alpha, as good where it is not."""
    asked = items[: rule.budget]
    right = (sum(item.baseline == 1.0 for item in asked), sum(item.candidate == 1.0 for item in asked))
    return Decision.FAIL if right[1] < right[0] and unpaired_p(right, len(asked)) < rule.alpha else Decision.PASS


def looked_at_repeatedly(items: Sequence[PairedItem], rule: SliceRule) -> Decision:
    """A paired test made for one look, of items taken for independent, until it says something."""
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
