"""Grows a tree of drafts with an EAGLE head (Li et al. 2024, EAGLE-2, arXiv 2406.16858).

Each level expands its likeliest nodes `width` ways. The tree then keeps the likeliest nodes, by the probability that
the head assigns to the whole branch. Nothing is sampled, so the tree is a function of the text.
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
    """Return a tree of at most `count` nodes. output: the head's output at the last index, (hidden,); position: that of
    the last index; embedding: the target's table. Does not change `past`."""
    ids: list[int] = []
    parents: list[int] = []
    chances: list[float] = []
    """Logarithms of the probabilities of whole branches."""

    def add(outputs: Tensor, nodes: list[int]) -> None:
        """Add the likeliest drafts after each of `nodes`."""
        likely = torch.log_softmax(head.logits(outputs), -1).topk(width)
        targets = head.target_ids(likely.indices).tolist()
        for node, drafts, values in zip(nodes, targets, likely.values.tolist(), strict=True):
            ids.extend(drafts)
            parents.extend([node] * width)
            chances.extend([value + (chances[node] if node >= 0 else 0.0) for value in values])

    add(output[None], [-1])
    seen = torch.ones(width, past.keys.shape[0], dtype=torch.bool, device=embedding.device)
    states = output.expand(width, -1)
    followed = list(range(width))
    own = torch.zeros(width, 0, dtype=torch.bool, device=embedding.device)
    for level in range(1, depth):
        tokens = torch.tensor([ids[node] for node in followed], device=embedding.device)
        # each node attends to its ancestors and itself
        own = torch.cat((own, torch.eye(width, dtype=torch.bool, device=embedding.device)), 1)
        at = torch.full((width,), position + level, device=embedding.device)
        outputs, past = head.extend(embedding[tokens], states, at, past, torch.cat((seen, own), 1))
        first = len(ids)
        add(outputs, followed)
        if level + 1 < depth:
            best = sorted(range(first, len(ids)), key=lambda node: -chances[node])[:width]
            parent_rows = torch.tensor([(node - first) // width for node in best], device=embedding.device)
            followed, states, own = best, outputs[parent_rows], own[parent_rows]
    return _likeliest(ids, parents, chances, count)


def _likeliest(ids: list[int], parents: list[int], chances: list[float], count: int) -> DraftTree:
    """Keep the `count` likeliest nodes; among equals, earlier nodes win. No child is likelier than its parent, so the
    result is a tree."""
    kept = sorted(sorted(range(len(ids)), key=lambda node: -chances[node])[:count])
    new_index = {node: index for index, node in enumerate(kept)}
    return DraftTree([ids[node] for node in kept], [new_index.get(parents[node], -1) for node in kept])
