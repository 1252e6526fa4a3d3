"""Has the gate judge a comparison's answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from control.eval_runs.plan import seeds_of
from control.evals.store import Rule
from evals.gate import GateVerdict, PairedItem, SliceRule, judge
from evals.slices.item import Source

Scores = Mapping[tuple[str, int], tuple[str, float]]
"""By slice and seed: cluster and score."""


def rules_of(sources: Sequence[Source], rule: Rule, budget_items: int) -> dict[str, SliceRule]:
    """Rules by slice. A slice with fewer items than the budget ends at its last item."""
    rules = {}
    for source in sources:
        budget = budget_items if source.size is None else min(budget_items, source.size)
        rules[source.name] = SliceRule(
            margin=rule.margins.get(source.name, rule.margin),
            alpha=rule.alpha,
            fail_alpha=rule.fail_alpha,
            power=rule.power,
            correlation=rule.correlation,
            first_look=min(rule.first_look, budget),
            budget=budget,
        )
    return rules


def verdict(
    sources: Sequence[Source], first_seed: int, rules: Mapping[str, SliceRule], baseline: Scores, candidate: Scores
) -> GateVerdict:
    """The verdict on the items that both have answered, in the order in which they were drawn."""
    items = {}
    for source in sources:
        seeds = seeds_of(source, first_seed, rules[source.name].budget)
        pairs = ((baseline.get((source.name, seed)), candidate.get((source.name, seed))) for seed in seeds)
        items[source.name] = [
            PairedItem(source.name, one[0], one[1], other[1])
            for one, other in pairs
            if one is not None and other is not None
        ]
    return judge(items, rules)
