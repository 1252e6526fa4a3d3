"""Checks drafts that branch. The target computes all nodes of a tree at once, and each attends only to its branch.

The nodes' keys and values are stored in the sequence's pages one after the other, like a chain's. Those of the accepted
branch are then moved together, so that the pages end like those of a chain. PyTorch's operations compute over gathered
pages; see `engines/layers/attention.py`.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows

import torch

from engines.embedded.kv.store import KVStore
from engines.embedded.models.llama import Llama
from engines.embedded.runner import Ran
from engines.embedded.sampler import Picked, pick
from engines.embedded.scheduler import Work
from engines.embedded.sequence import Sequence
from engines.layers.attention import AttentionPlan, Chunk
from speculative.rules import accepted_path
from speculative.tree import DraftTree


class TreeChecker:
    """Shares the model and its memory with the runner."""

    def __init__(self, model: Llama, store: KVStore, layers: tuple[int, ...]) -> None:
        """layers: the layers whose outputs are requested."""
        self._model = model
        self._store = store
        self._layers = layers
        # bf16 sums would depend on the rest of the batch
        self._dtype = torch.float32 if model.device.type == "cpu" else model.dtype

    @torch.inference_mode()
    def run(self, works: Rows[Work]) -> Ran:
        """Check the works, whose sequences generate, each with a tree. Each sequence keeps its accepted branch as
        drafts, and the result covers its last token and these drafts."""
        rows: list[tuple[int, int, int]] = []
        chunks: list[Chunk] = []
        sampled: list[Sequence] = []
        for work in works:
            sequence = work.sequence
            tree = _tree(sequence)
            chunks.append(self._chunk(sequence, tree, len(rows)))
            rows += self._rows(sequence, tree)
            sampled += [sequence] * work.tokens
        ids, positions, slots = torch.tensor(rows, device=self._model.device).unbind(1)
        hidden, outputs = self._model.hidden_and_outputs(
            ids,
            positions,
            self._store.pages,
            AttentionPlan(slots, chunks=tuple(chunks)),
            self._layers,
            dtype=self._model.generation_dtype,
        )
        picked = pick(self._model.logits(hidden), tuple(sampled))
        states = torch.cat(outputs, -1) if outputs else None
        checked = Ran([], {}, {})
        first = 0
        for work in works:
            kept = self._prune(work.sequence, picked[first : first + work.tokens])
            checked.picks.append((work.sequence, [picked[first + row] for row in kept]))
            if states is not None:
                checked.states[work.sequence] = states[torch.tensor(kept, device=states.device) + first]
            first += work.tokens
        return checked

    def _rows(self, sequence: Sequence, tree: DraftTree) -> list[tuple[int, int, int]]:
        """Id, position and slot of the last token and of every node."""
        start = sequence.computed
        ids = [sequence.tokens[start], *tree.ids]
        return [
            (id_, start + depth, self._slot(sequence, start + row))
            for row, (id_, depth) in enumerate(zip(ids, tree.depths(), strict=True))
        ]

    def _chunk(self, sequence: Sequence, tree: DraftTree, row: int) -> Chunk:
        start, count, page_tokens = sequence.computed, len(tree.ids), self._store.page_tokens
        pages = sequence.pages[: -(-(start + 1 + count) // page_tokens)]
        bias = torch.full((1 + count, len(pages) * page_tokens), float("-inf"), dtype=self._dtype)
        bias[:, : start + 1] = 0
        for node, line in enumerate(tree.ancestors()):
            bias[1 + node, [start + 1 + other for other in line]] = 0
        device = self._model.device
        return Chunk(row, row + 1 + count, torch.tensor(pages, device=device), bias.to(device), self._dtype)

    def _prune(self, sequence: Sequence, picked: Rows[Picked]) -> list[int]:
        """Keep only the accepted branch of the sequence; return its rows, beginning with the last token's."""
        tree = _tree(sequence)
        path = accepted_path(tree.ids, tree.parents, [one.id for one in picked])
        first = sequence.computed + 1
        moves = [(first + node, first + index) for index, node in enumerate(path) if node != index]
        if moves:
            sources, targets = zip(*moves, strict=True)
            self._store.move([self._slot(sequence, at) for at in sources], [self._slot(sequence, at) for at in targets])
        sequence.keep_branch(path)
        return [0, *(1 + node for node in path)]

    def _slot(self, sequence: Sequence, position: int) -> int:
        page, offset = divmod(position, self._store.page_tokens)
        return sequence.pages[page] * self._store.page_tokens + offset


def _tree(sequence: Sequence) -> DraftTree:
    """The part of the tree that fits the step's budget."""
    assert sequence.draft_tree is not None
    return sequence.draft_tree.first(len(sequence.drafts))
