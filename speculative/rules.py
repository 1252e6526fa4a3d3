"""What makes speculation lossless where drafts are a function of the text: which of them are kept.

Drafts that were drawn from a distribution are `verify`'s.
"""

from __future__ import annotations

from collections.abc import Sequence


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
