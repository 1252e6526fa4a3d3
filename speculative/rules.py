"""What makes speculation lossless, on plain numbers: which drafts are kept, and what is sampled where they end.

Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; Chen et al. 2023 (arXiv 2302.01318). The functions work
on any kind of number, so that tests can enumerate distributions with exact fractions. `verify` does it with tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

NumberT = TypeVar("NumberT", float, Fraction)


def accepted_prefix(drafts: Sequence[int], picked: Sequence[int]) -> int:
    """How many drafts the target itself picked, up to the first that it did not.

    picked[i]: the token the target picked after drafts[:i], greedily or by a coin. Lossless when the drafts are a
    function of the context alone: each token that is kept, and the one after them, is one the target picked.
    """
    count = 0
    for draft, own in zip(drafts, picked, strict=False):
        if draft != own:
            break
        count += 1
    return count


def accepted_path(drafts: Sequence[int], parents: Sequence[int], picked: Sequence[int]) -> list[int]:
    """The nodes of a tree of drafts that the target itself picked, from the text on.

    drafts, parents: as in `tree.DraftTree`. picked: the token the target picked after the text, then after each node.
    Lossless when the tree is a function of the context alone, for the same reason as `accepted_prefix`; the picks of
    nodes equally deep may share their coin, as at most one of them comes to be.
    """
    children = {(parent, draft): node for node, (draft, parent) in enumerate(zip(drafts, parents, strict=True))}
    path: list[int] = []
    at = -1
    while (node := children.get((at, picked[at + 1]))) is not None:
        path.append(node)
        at = node
    return path


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
