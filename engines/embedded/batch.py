"""Lays one step's work out as flat tensors and an attention plan."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engines.embedded.scheduler import Work
from engines.embedded.sequence import Sequence
from engines.layers.attention import AttentionPlan, Chunk, SingleGroup


@dataclass(frozen=True, slots=True)
class Batch:
    """One step, ready for the model."""

    ids: Tensor
    """(tokens,)"""
    positions: Tensor
    """(tokens,)"""
    plan: AttentionPlan
    sampled: tuple[Sequence, ...]
    """Sequences whose computed tokens catch up in this step: each gets a new token."""
    sampled_rows: Tensor
    """(sampled,) the row of each one's last token."""


class BatchBuilder:
    """Builds batches for one page size and one bias format."""

    def __init__(self, page_tokens: int, dtype: torch.dtype) -> None:
        self._page_tokens = page_tokens
        self._dtype = dtype

    def build(self, works: list[Work]) -> Batch:
        """Single tokens first, similar context lengths together; then chunks, as the attention layer wants it."""
        singles = sorted((w for w in works if w.tokens == 1), key=lambda w: len(w.sequence.pages))
        chunks = [w for w in works if w.tokens > 1]
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        sampled: list[Sequence] = []
        sampled_rows: list[int] = []
        page_tokens = self._page_tokens
        for sequence, tokens, forks in (*singles, *chunks):
            start, stop = sequence.computed, sequence.computed + tokens
            pages = sequence.pages
            ids += sequence.tokens[start:stop]
            positions += range(start, stop)
            slots += [pages[at // page_tokens] * page_tokens + at % page_tokens for at in range(start, stop)]
            if stop == len(sequence.tokens):
                sampled += (sequence, *forks)
                sampled_rows += [len(ids) - 1] * (1 + len(forks))
        plan = AttentionPlan(torch.tensor(slots), self._groups(singles), self._chunks(chunks, len(singles)))
        return Batch(torch.tensor(ids), torch.tensor(positions), plan, tuple(sampled), torch.tensor(sampled_rows))

    def _groups(self, singles: list[Work]) -> tuple[SingleGroup, ...]:
        """Cut the sorted rows where the context has more than doubled: padding then costs at most half of the work."""
        groups: list[SingleGroup] = []
        start = 0
        for stop in range(1, len(singles) + 1):
            shortest = max(len(singles[start].sequence.pages), 4)
            if stop == len(singles) or len(singles[stop].sequence.pages) > 2 * shortest:
                groups.append(self._group(start, [work.sequence for work in singles[start:stop]]))
                start = stop
        return tuple(groups)

    def _group(self, start: int, sequences: list[Sequence]) -> SingleGroup:
        width = len(sequences[-1].pages)  # sorted: the last has the most
        numbers: list[int] = []
        for sequence in sequences:
            numbers += sequence.pages
            numbers += [0] * (width - len(sequence.pages))
        lengths = torch.tensor([sequence.computed + 1 for sequence in sequences])
        hidden = torch.arange(width * self._page_tokens) >= lengths[:, None]  # (rows, positions)
        bias = torch.zeros(hidden.shape, dtype=self._dtype).masked_fill_(hidden, float("-inf"))
        return SingleGroup(start, start + len(sequences), torch.tensor(numbers), bias[:, None, None, :])

    def _chunks(self, works: list[Work], start: int) -> tuple[Chunk, ...]:
        chunks: list[Chunk] = []
        for sequence, tokens, _ in works:
            past = sequence.computed
            bias = None
            if past:
                positions = torch.arange(len(sequence.pages) * self._page_tokens)
                hidden = positions > torch.arange(past, past + tokens)[:, None]  # (rows, positions)
                bias = torch.zeros(hidden.shape, dtype=self._dtype).masked_fill_(hidden, float("-inf"))
            chunks.append(Chunk(start, start + tokens, torch.tensor(sequence.pages), bias))
            start += tokens
        return tuple(chunks)
