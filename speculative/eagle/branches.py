"""Grows a tree of drafts with an EAGLE head (Li et al. 2024, EAGLE-2, arXiv 2406.16858).

Level by level the likeliest nodes are expanded, `width` ways each; the likeliest nodes of the result are kept, by the
probability the head gives to the whole branch. Nothing is sampled, so the tree is a function of the text.
"""

from __future__ import annotations

import torch
from torch import Tensor

from speculative.eagle.head import EagleHead, KeysValues
from speculative.tree import DraftTree


def grow(
    head: EagleHead,
    output: Tensor,
    past: KeysValues,
    position: int,
    embedding: Tensor,
    count: int,
    depth: int,
    width: int,
) -> DraftTree:
    """The tree, of at most `count` nodes. output: the last index's, (hidden,); position: that index's; embedding: the
    target's table. `past` is not changed."""
    ids: list[int] = []
    parents: list[int] = []
    chances: list[float] = []
    """Logarithms of whole branches' probabilities."""

    def add(outputs: Tensor, nodes: list[int]) -> None:
        """Add the likeliest drafts after each of `nodes`."""
        likely = torch.log_softmax(head.logits(outputs), -1).topk(width)
        targets = head.target_ids(likely.indices).tolist()
        for node, own, values in zip(nodes, targets, likely.values.tolist(), strict=True):
            ids.extend(own)
            parents.extend([node] * width)
            chances.extend([value + (chances[node] if node >= 0 else 0.0) for value in values])

    add(output[None], [-1])
    seen = torch.ones(width, past.keys.shape[0], dtype=torch.bool, device=embedding.device)
    states = output.expand(width, -1)
    followed = list(range(width))
    own = torch.zeros(width, 0, dtype=torch.bool, device=embedding.device)
    for level in range(1, depth):
        tokens = torch.tensor([ids[node] for node in followed], device=embedding.device)
        # each attends to its ancestors and itself
        own = torch.cat((own, torch.eye(width, dtype=torch.bool, device=embedding.device)), 1)
        at = torch.full((width,), position + level, device=embedding.device)
        outputs, past = head.extend(embedding[tokens], states, at, past, torch.cat((seen, own), 1))
        first = len(ids)
        add(outputs, followed)
        if level + 1 < depth:
            best = sorted(range(first, len(ids)), key=lambda node: -chances[node])[:width]
            above = torch.tensor([(node - first) // width for node in best], device=embedding.device)
            followed, states, own = best, outputs[above], own[above]
    return _likeliest(ids, parents, chances, count)


def _likeliest(ids: list[int], parents: list[int], chances: list[float], count: int) -> DraftTree:
    """The likeliest nodes, earlier ones first among equals: no child is likelier than its parent, so the result is a
    tree."""
    kept = sorted(sorted(range(len(ids)), key=lambda node: -chances[node])[:count])
    place = {node: at for at, node in enumerate(kept)}
    return DraftTree([ids[node] for node in kept], [place.get(parents[node], -1) for node in kept])
