"""The drafts to keep where drafts are a function of the text, which makes speculation lossless.

`verify` handles sampled drafts.
"""

from __future__ import annotations

from collections.abc import Sequence


def accepted_prefix(drafts: Sequence[int], picked: Sequence[int]) -> int:
    """Number of leading drafts that the target itself picked.

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

    drafts, parents: see `tree.DraftTree`. picked: the token the target picked after the text, then after each node.
    Lossless when the tree is a function of the context alone, for the same reason as `accepted_prefix`; the picks of
    nodes equally deep may share their coin, because at most one of them is kept.
    """
    children = {(parent, draft): node for node, (draft, parent) in enumerate(zip(drafts, parents, strict=True))}
    path: list[int] = []
    at = -1
    while (node := children.get((at, picked[at + 1]))) is not None:
        path.append(node)
        at = node
    return path
