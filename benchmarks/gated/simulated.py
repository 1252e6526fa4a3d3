"""Answers of a baseline and a candidate whose true difference is known, in clusters of correlated losses."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence

from benchmarks.gated.rivals import looked_at_repeatedly, unpaired
from evals.gate import Decision, PairedItem, SliceRule, judge_slice

RIGHT = 0.85
"""Of the items whose verdict does not flip, the share that both answer right; lm-eval's rule depends on it."""


@dataclasses.dataclass(frozen=True)
class Clusters:
    """How items are correlated."""

    templates: int
    """The number of templates; 0 if every item has its own."""
    correlation: float
    """The intraclass correlation of losses and of wins: how unequal the templates' rates are."""

    def __str__(self) -> str:
        return f"{self.templates} templates, {self.correlation:g}" if self.templates else "none"


STRUCTURES = (Clusters(0, 0.0), Clusters(100, 0.02), Clusters(30, 0.05), Clusters(10, 0.05))
"""Structures that the gate's rule allows for (`SliceRule.correlation`)."""
BEYOND = Clusters(10, 0.2)
"""More correlation than the rule allows for: few templates that lose as one. No bound on passes is promised."""
FLIP_SHARES = (0.0, 0.005, 0.03, 0.1)
SCHEDULES = ((100, 400, 0.03), (200, 1600, 0.02), (50, 1600, 0.02))
"""First look, budget and margin."""


def answers(draw: random.Random, count: int, clusters: Clusters, lost: float, won: float) -> list[PairedItem]:
    """Draw `count` items. Each call draws every template's rates from beta distributions with these means."""
    rates = [
        (_rate(draw, lost, clusters.correlation), _rate(draw, won, clusters.correlation))
        for _ in range(clusters.templates)
    ]
    items = []
    for number in range(count):
        template = draw.randrange(clusters.templates) if rates else number
        losing, winning = rates[template] if rates else (lost, won)
        at = draw.random()
        if at < losing:
            scores = (1.0, 0.0)
        elif at < losing + winning:
            scores = (0.0, 1.0)
        else:
            scores = (1.0, 1.0) if draw.random() < RIGHT else (0.0, 0.0)
        items.append(PairedItem("simulated", str(template), *scores))
    return items


def _rate(draw: random.Random, mean: float, correlation: float) -> float:
    if not 0.0 < mean < 1.0 or not correlation:
        return mean
    strength = 1.0 / correlation - 1.0
    return draw.betavariate(mean * strength, (1.0 - mean) * strength)


@dataclasses.dataclass(frozen=True)
class Rates:
    """How often each rule decided what, over runs."""

    decided: dict[str, tuple[float, float]]
    """Shares that failed and that passed, by rule."""
    items: float
    """The mean number of items until the gate decided."""


RULES: dict[str, Callable[[Sequence[PairedItem], SliceRule], Decision]] = {
    "unpaired": unpaired,
    "repeated": looked_at_repeatedly,
}


def measure(clusters: Clusters, flips: float, difference: float, rule: SliceRule, runs: int) -> Rates:
    """Measure the rules on a candidate with this true difference. flips: the share of items that flip if it is 0."""
    seed = f"{clusters}/{flips}/{difference}/{rule.first_look}/{rule.budget}"
    decisions: dict[str, list[Decision]] = {"gate": [], **{name: [] for name in RULES}}
    counted = 0
    # the difference adds losses to the flips that equals have
    lost, won = flips / 2.0 - difference, flips / 2.0
    for run in range(runs):
        items = answers(random.Random(f"{seed}/{run}"), rule.budget, clusters, lost, won)
        verdict = judge_slice(items, rule)
        counted += verdict.n
        decisions["gate"].append(verdict.decision)
        for name, judge in RULES.items():
            decisions[name].append(judge(items, rule))
    shares = {
        name: (found.count(Decision.FAIL) / runs, found.count(Decision.PASS) / runs)
        for name, found in decisions.items()
    }
    return Rates(shares, counted / runs)


def cases(schedules: Sequence[tuple[int, int, float]]) -> Iterator[tuple[SliceRule, Clusters, float]]:
    """Yield every schedule with every structure and flip share."""
    for first, budget, margin in schedules:
        rule = SliceRule(margin=margin, first_look=first, budget=budget)
        for clusters in (*STRUCTURES, BEYOND):
            for flips in FLIP_SHARES:
                yield rule, clusters, flips


def power_curve(flips: float, clusters: Clusters, budgets: Sequence[int], runs: int) -> list[tuple[int, float]]:
    """The share of equal candidates that pass, by budget, with looks at an eighth, a quarter and half of it."""
    curve = []
    for budget in budgets:
        rule = SliceRule(first_look=max(1, budget // 8), budget=budget)
        curve.append((budget, measure(clusters, flips, 0.0, rule, runs).decided["gate"][1]))
    return curve
