"""The shipped chat model against itself, sound and broken: answers of the embedded engine, in this process."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from engines.embedded.config import EngineConfig, SchedulerConfig
from evals.gate import GateVerdict, PairedItem, SliceRule, judge
from evals.slices.item import Item
from evals.slices.registry import find
from evals.slices.split import Split
from tools.quantization.asking import Asked
from tools.quantization.defects import SOUND, Defect

MODEL = Path("models/slipstream-chat")
TEMPERATURE = 1.0
"""The temperature of both sides of an equal run: they draw with different seeds, so verdicts flip."""
FIRST_SEED = 10_000_000
"""The first item: no choice was made by the items from here on."""


@dataclasses.dataclass
class Side:
    """One model, and how it is asked."""

    asked: Asked
    temperature: float = 0.0
    seed: int = 0

    def scores(self, items: list[Item]) -> list[float]:
        """The score of each item's answer."""
        answers = self.asked.answers(items, temperature=self.temperature, seed=self.seed)
        return [item.score(answer) for item, answer in zip(items, answers, strict=True)]


class Baseline:
    """A side whose scores are kept: it is compared with one candidate after another on the same items."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._scores: dict[tuple[str, int], list[float]] = {}

    def scores(self, items: list[Item], key: tuple[str, int]) -> list[float]:
        """The scores of these items. key: their slice and first seed."""
        if key not in self._scores:
            self._scores[key] = self._side.scores(items)
        return self._scores[key]


def batchings(seed: str) -> tuple[EngineConfig, EngineConfig]:
    """Two ways to batch the same model, as two replicas under different load would."""
    draw = random.Random(seed)
    running = draw.sample((3, 8, 16, 32, 64), 2)
    tokens = draw.sample((160, 512, 1024, 2048), 2)
    first, second = (
        EngineConfig(scheduler=SchedulerConfig(max_running=most, max_batch_tokens=budget, max_queued=100_000))
        for most, budget in zip(running, tokens, strict=True)
    )
    return first, second


def compare(baseline: Baseline, candidate: Side, rules: Mapping[str, SliceRule], first_seed: int) -> GateVerdict:
    """Draw items until the gate has decided or the budget ends."""
    items: dict[str, list[PairedItem]] = {name: [] for name in rules}
    verdict = judge(items, rules)
    while wanted := verdict.wanted:
        for name, count in wanted.items():
            begin = first_seed + len(items[name])
            drawn = [find(name).item(seed, Split.HELD_OUT) for seed in range(begin, first_seed + count)]
            was, now = baseline.scores(drawn, (name, begin)), candidate.scores(drawn)
            items[name] += [
                PairedItem(name, item.cluster, *scores) for item, *scores in zip(drawn, was, now, strict=True)
            ]
        verdict = judge(items, rules)
    return verdict


def equal_runs(runs: range, rules: Mapping[str, SliceRule]) -> Iterator[GateVerdict]:
    """Compare the model with itself in another batch and with another seed, each run on items of its own."""
    for run in runs:
        first, second = (Asked(MODEL, SOUND, config) for config in batchings(f"equal/{run}"))
        budget = max(rule.budget for rule in rules.values())
        baseline = Baseline(Side(first, TEMPERATURE, 2 * run))
        yield compare(baseline, Side(second, TEMPERATURE, 2 * run + 1), rules, FIRST_SEED + run * budget)


def broken_runs(
    defects: tuple[Defect, ...], repeats: int, rules: Mapping[str, SliceRule]
) -> Iterator[tuple[Defect, GateVerdict]]:
    """Compare the model with itself broken, both greedy as in the platform's evals; each repeat on items of its own."""
    budget = max(rule.budget for rule in rules.values())
    for repeat in range(repeats):
        first, second = batchings(f"broken/{repeat}")
        baseline = Baseline(Side(Asked(MODEL, SOUND, first)))
        for defect in defects:
            candidate = Side(Asked(MODEL, defect, second))
            yield defect, compare(baseline, candidate, rules, FIRST_SEED * 2 + repeat * budget)
