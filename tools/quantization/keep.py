"""What to keep in higher precision, so that the rest costs no more than a budget: the cheapest choice in memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Cost(msgspec.Struct, frozen=True):
    """What rounding one part does, and what keeping it takes."""

    name: str
    kl_per_token: float
    """Of rounding it alone."""
    rounded_bytes: int
    kept_bytes: int


class Choice(msgspec.Struct, frozen=True):
    """What is kept, in the order of the parts."""

    keep: tuple[str, ...]
    kl_per_token: float
    """Of the parts that stay rounded, as if single ones added up."""
    extra_bytes: int
    """More than with everything rounded."""


def cheapest(parts: Sequence[Cost], budget_kl: float) -> Choice:
    """The choice with the fewest extra bytes whose sum of what stays rounded is at most the budget; of several the one
    with the smallest sum. Nothing needs to be kept where all fit, and keeping everything always fits.

    Exact: of all sums of the first parts only those are carried on that no other beats in both bytes and KL, which are
    few because parts of a kind are equally large. Source: Nemhauser and Ullmann 1969. Raises ValueError for a budget or
    a part below 0.
    """
    if budget_kl < 0 or any(part.kl_per_token < 0 for part in parts):
        raise ValueError("the budget and what parts cost must be 0 or more")
    # (extra bytes, KL that stays, kept): no state is beaten by another in both
    states: list[tuple[int, float, tuple[str, ...]]] = [(0, 0.0, ())]
    for part in parts:
        extra = part.kept_bytes - part.rounded_bytes
        rounded = [(size, kl + part.kl_per_token, kept) for size, kl, kept in states]
        kept = [(size + extra, kl, (*kept, part.name)) for size, kl, kept in states]
        states = _best(rounded + kept, budget_kl)
    size, kl, names = states[0]
    return Choice(names, kl, size)


def _best(
    states: list[tuple[int, float, tuple[str, ...]]], budget_kl: float
) -> list[tuple[int, float, tuple[str, ...]]]:
    found: list[tuple[int, float, tuple[str, ...]]] = []
    for state in sorted(states):
        if state[1] <= budget_kl and (not found or state[1] < found[-1][1]):
            found.append(state)
    return found
