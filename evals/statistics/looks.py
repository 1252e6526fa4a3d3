"""When a comparison is looked at, and how much of its error rate each look may spend."""

from __future__ import annotations

from collections.abc import Sequence


def looks(first: int, budget: int) -> tuple[int, ...]:
    """The numbers of items that are looked at: from the first on twice as many each time, and the budget.

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
    """What each look may spend of alpha; together they are alpha.

    By the part t of the items that are there, alpha * t^2 has been spent (the power family of Kim and DeMets 1987, in
    the scheme of Lan and DeMets 1983): little early, when only gross differences show, and most of it for the last
    look. A look's level is what it adds, and the levels add up (Bonferroni), so the error rate of all looks together is
    alpha whatever test is used at each and however the looks hang together, clusters included. Reckoning with their
    correlation would allow slightly larger levels; docs/concepts/eval-gate.md has how much that would save.
    """
    spent = [alpha * (count / counts[-1]) ** 2 for count in counts]
    return tuple(now - before for now, before in zip(spent, [0.0, *spent], strict=False))
