"""The share of a slice's items that were answered right, and its confidence interval."""

from __future__ import annotations

import dataclasses

from evals.statistics.interval import wilson


@dataclasses.dataclass(frozen=True)
class Score:
    """Right answers of a slice."""

    slice: str
    about: str
    right: float
    """The sum of the items' scores, which is no whole number if answers can be partly right. The interval is then wider
    than necessary: no score between 0 and 1 varies more than a coin with the same mean."""
    items: int
    goal: float

    @property
    def share(self) -> float:
        """Share of the items, 0 to 1."""
        return self.right / self.items

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the true share."""
        return wilson(self.share, self.items)

    @property
    def is_reached(self) -> bool:
        """Whether the share is at least the goal."""
        return self.share >= self.goal


def table(scores: list[Score]) -> str:
    """The scores in Markdown."""
    lines = ["| slice | what | held-out | 95 % interval | items | goal |", "|---|---|---|---|---|---|"]
    for score in scores:
        low, high = score.interval
        goal = f"{score.goal:.2f}" if score.goal else "none"
        if not score.is_reached:
            goal += f", **missed by {score.goal - score.share:.3f}**"
        lines.append(
            f"| {score.slice} | {score.about} | {score.share:.3f} | {low:.3f} to {high:.3f} | {score.items} | {goal} |"
        )
    return "\n".join(lines)
