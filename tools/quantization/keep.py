"""Chooses the parts to keep in higher precision: the choice of least memory whose rounded rest is within a budget."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Cost(msgspec.Struct, frozen=True):
    """The effect of rounding one part, and its size rounded and kept."""

    name: str
    kl_per_token: float
    """KL if only this part is rounded."""
    rounded_bytes: int
    kept_bytes: int


class Choice(msgspec.Struct, frozen=True):
    """The parts that are kept, in their order."""

    keep: tuple[str, ...]
    kl_per_token: float
    """Sum over the parts that stay rounded."""
    extra_bytes: int
    """Bytes in addition to those with everything rounded."""


def cheapest(parts: Sequence[Cost], budget_kl: float) -> Choice:
    """The choice with the fewest extra bytes whose rounded parts' KL adds up to at most the budget; among equals, the
    one with the smallest sum. Keeping everything always fits.

    It is exact: part by part, it keeps only the choices that no other beats in both bytes and KL. They are few because
    parts of a kind are equally large. Source: Nemhauser and Ullmann 1969. Raises ValueError for a budget or a part
    below 0.
    """
    if budget_kl < 0 or any(part.kl_per_token < 0 for part in parts):
        raise ValueError("the budget and what parts cost must be 0 or more")
    # (extra bytes, remaining KL, kept): no state is beaten by another in both numbers
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
