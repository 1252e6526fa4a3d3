"""Decides which drafts to keep if they are a function of the text, which makes speculation lossless.

`verify` handles sampled drafts.
"""

from __future__ import annotations

from collections.abc import Sequence


def accepted_prefix(drafts: Sequence[int], picked: Sequence[int]) -> int:
    """Number of leading drafts that the target itself picked.

    picked[i]: the token that the target picked after drafts[:i], greedily or by a coin. The rule is lossless if the
    drafts are a function of the context alone, because the target picked each kept token and the one after them.
    """
    count = 0
    for draft, own in zip(drafts, picked, strict=False):
        if draft != own:
            break
        count += 1
    return count


def accepted_path(drafts: Sequence[int], parents: Sequence[int], picked: Sequence[int]) -> list[int]:
    """The nodes of a draft tree that the target itself picked, in order from the text.

    drafts, parents: see `tree.DraftTree`. picked: the token that the target picked after the text, then after each
    node. The rule is lossless if the tree is a function of the context alone, for the reason given in
    `accepted_prefix`. Picks at nodes of the same depth may share a coin, because at most one of these nodes is kept.
    """
    children = {(parent, draft): node for node, (draft, parent) in enumerate(zip(drafts, parents, strict=True))}
    path: list[int] = []
    at = -1
    while (node := children.get((at, picked[at + 1]))) is not None:
        path.append(node)
        at = node
    return path
