"""`speculative.verify` on plain numbers, for reading and for comparing with.

Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; Chen et al. 2023 (arXiv 2302.01318). The functions work
on any kind of number, so that tests can enumerate distributions with exact fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

NumberT = TypeVar("NumberT", float, Fraction)


def acceptance(p: Sequence[NumberT], q: Sequence[NumberT], token: int) -> NumberT:
    """The probability to keep a token drawn from q where the target has p: min(1, p/q).

    q must be the distribution it was drawn from, after temperature and filters. A q of 0 rejects.
    """
    zero = p[token] - p[token]
    return min(zero + 1, p[token] / q[token]) if q[token] > 0 else zero


def residual(p: Sequence[NumberT], q: Sequence[NumberT]) -> list[NumberT]:
    """What is sampled after a rejection: norm(max(p - q, 0)); p itself where nothing is left but rounding."""
    rest = [max(mine - theirs, mine - mine) for mine, theirs in zip(p, q, strict=True)]
    total = sum(rest)
    return [value / total for value in rest] if total > 0 else list(p)


def inverse(weights: Sequence[NumberT], coin: NumberT) -> int:
    """The index at which the cumulated weights pass `coin` of their total; never one of weight 0. coin: in [0, 1)."""
    target = coin * sum(weights)
    last = 0
    running = target - target
    for index, weight in enumerate(weights):
        if weight > 0:
            running += weight
            last = index
            if running > target:
                break
    return last


def chain(
    p: Sequence[Sequence[NumberT]], q: Sequence[Sequence[NumberT]], drafts: Sequence[int], coins: Sequence[NumberT]
) -> tuple[int, int]:
    """Drafts kept, and the token after them.

    p: k+1 target distributions, after 0 .. k drafts; q: the k distributions the drafts were drawn from; coins: k+1
    independent uniform numbers in [0, 1), used for nothing else; the last one samples.
    """
    for index, token in enumerate(drafts):
        if not coins[index] < acceptance(p[index], q[index], token):
            return index, inverse(residual(p[index], q[index]), coins[-1])
    return len(drafts), inverse(p[len(drafts)], coins[-1])
