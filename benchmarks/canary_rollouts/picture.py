"""Draws the operating curve: the probability of a rollback and of a promotion over the candidate's true change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.canary_rollouts.rollout import Ending
from benchmarks.canary_rollouts.summary import promoted, rolled_back
from tools.simulator.chart import Panel, svg

CURVE = "curve"
"""The part of the benchmark that is drawn."""


def draw(results: Mapping[tuple[str, float], Mapping[str, Sequence[Ending]]]) -> str:
    """SVG with two panels for each traffic, a curve per judge. results: by traffic and factor of TTFT."""
    panels = []
    for traffic in dict.fromkeys(name for name, _ in results):
        for title, share in (("rolled back", rolled_back), ("promoted to all traffic", promoted)):
            curves: dict[str, list[tuple[float, float]]] = {}
            for (name, factor), endings_by_judge in results.items():
                if name == traffic:
                    for judge, endings in endings_by_judge.items():
                        curves.setdefault(judge, []).append((100 * (factor - 1), 100 * share(endings)))
            panels.append(Panel(f"{traffic}: {title}", "true change of TTFT, %", "% of rollouts", curves))
    return svg("What a release meets, by how much slower or faster it is", panels)
