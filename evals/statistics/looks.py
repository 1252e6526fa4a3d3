"""The interim looks of a comparison, and the part of its error rate that each look may spend."""

from __future__ import annotations

from collections.abc import Sequence


def looks(first: int, budget: int) -> tuple[int, ...]:
    """The numbers of items at each look: the first one, then twice as many each time, and the budget.

    Raises ValueError unless 1 <= first and 1 <= budget.
    """
    if first < 1 or budget < 1:
        raise ValueError(f"first look and budget must be at least one item, got {first} and {budget}")
    counts = []
    while first < budget:
        counts.append(first)
        first *= 2
    return (*counts, budget)


def levels(alpha: float, counts: Sequence[int]) -> tuple[float, ...]:
    """The part of alpha that each look may spend; together, the parts are alpha.

    With a fraction t of the items, alpha * t^2 is spent (the power family of Kim and DeMets 1987, in the scheme of Lan
    and DeMets 1983): little early, when only gross differences show, and most of it at the last look. A look's level is
    its increment. The levels add up (Bonferroni), so the error rate of all looks together is alpha, whatever the tests
    and however the looks depend on each other, including clusters. Their correlation would allow slightly larger
    levels; docs/concepts/eval-gate.md states how much that would save.
    """
    spent = [alpha * (count / counts[-1]) ** 2 for count in counts]
    return tuple(now - before for now, before in zip(spent, [0.0, *spent], strict=False))
