"""Lays one step's work out as flat tensors and an attention plan.

Sequences that generate stand first, those with as many drafts together and similar context lengths next to each other;
then chunks of prompts, as the attention layer wants it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engines.embedded.scheduler import Work
from engines.embedded.sequence import Sequence
from engines.layers.attention import AttentionPlan, Chunk, TokenGroup


class Scored(NamedTuple):
    """Rows of a prompt whose next tokens' probabilities were asked for."""

    sequence: Sequence
    start: int
    stop: int
    """Rows start..stop-1 of the batch."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One step, ready for the model."""

    ids: Tensor
    """(tokens,)"""
    positions: Tensor
    """(tokens,)"""
    plan: AttentionPlan
    sampled: tuple[Sequence, ...]
    """Sequences whose computed tokens catch up in this step: each gets a new token. One with k drafts stands here
    k + 1 times in a row."""
    sampled_rows: Tensor
    """(sampled,) the row of each one's last token, then of its drafts."""
    order: tuple[Work, ...]
    """The works as their rows stand in the batch."""
    scored: tuple[Scored, ...] = ()


class BatchBuilder:
    """Builds batches for one page size and one bias format."""

    def __init__(self, page_tokens: int, dtype: torch.dtype) -> None:
        self._page_tokens = page_tokens
        self._dtype = dtype

    def build(self, works: list[Work]) -> Batch:
        """works: a sequence with drafts computes them all."""
        generating = sorted((w for w in works if w.tokens == 1 or w.drafts), key=lambda w: (w.tokens, _pages(w)))
        chunks = [w for w in works if w.tokens > 1 and not w.drafts]
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        sampled: list[Sequence] = []
        sampled_rows: list[int] = []
        scored: list[Scored] = []
        page_tokens = self._page_tokens
        for sequence, tokens, drafts, forks in (*generating, *chunks):
            start, stop = sequence.computed, sequence.computed + tokens
            pages = sequence.pages
            if sequence.sampling.score_prompt and (unscored := sequence.unscored(start, stop)):
                scored.append(Scored(sequence, len(ids) + unscored.start - start, len(ids) + unscored.stop - start))
            ids += sequence.tokens[start:stop]
            if drafts:
                ids += sequence.drafts
            positions += range(start, stop)
            slots += [pages[at // page_tokens] * page_tokens + at % page_tokens for at in range(start, stop)]
            if stop == len(sequence.tokens) + drafts:
                sampled += [sequence] * (1 + drafts)
                sampled_rows += range(len(ids) - 1 - drafts, len(ids))
                sampled += forks
                sampled_rows += [len(ids) - 1] * len(forks)
        first_chunk = sum(work.tokens for work in generating)
        plan = AttentionPlan(torch.tensor(slots), self._groups(generating), self._chunks(chunks, first_chunk))
        return Batch(
            torch.tensor(ids),
            torch.tensor(positions),
            plan,
            tuple(sampled),
            torch.tensor(sampled_rows),
            (*generating, *chunks),
            tuple(scored),
        )

    def _groups(self, works: list[Work]) -> tuple[TokenGroup, ...]:
        """Cut the sorted works where they have more tokens each, or where the context has more than doubled: padding
        then costs at most half of the work."""
        groups: list[TokenGroup] = []
        first = row = 0
        for stop in range(1, len(works) + 1):
            tokens = works[first].tokens
            if (
                stop == len(works)
                or works[stop].tokens > tokens
                or _pages(works[stop]) > 2 * max(_pages(works[first]), 4)
            ):
                groups.append(self._group(row, works[first:stop]))
                row += tokens * (stop - first)
                first = stop
        return tuple(groups)

    def _group(self, row: int, works: list[Work]) -> TokenGroup:
        width = _pages(works[-1])  # sorted: the last has the most
        tokens = works[0].tokens
        numbers: list[int] = []
        for work in works:
            pages = work.sequence.pages
            numbers += pages
            numbers += [0] * (width - len(pages))
        lengths = torch.tensor([work.sequence.computed + 1 for work in works])
        if tokens > 1:
            lengths = (lengths[:, None] + torch.arange(tokens)).flatten()  # a draft sees those before it
        hidden = torch.arange(width * self._page_tokens) >= lengths[:, None]  # (rows, positions)
        bias = torch.zeros(hidden.shape, dtype=self._dtype).masked_fill_(hidden, float("-inf"))
        return TokenGroup(
            row, row + tokens * len(works), tokens, torch.tensor(numbers), bias.view(len(works), 1, tokens, -1)
        )

    def _chunks(self, works: list[Work], start: int) -> tuple[Chunk, ...]:
        chunks: list[Chunk] = []
        for sequence, tokens, _, _ in works:
            past = sequence.computed
            bias = None
            if past:
                positions = torch.arange(len(sequence.pages) * self._page_tokens)
                hidden = positions > torch.arange(past, past + tokens)[:, None]  # (rows, positions)
                bias = torch.zeros(hidden.shape, dtype=self._dtype).masked_fill_(hidden, float("-inf"))
            chunks.append(Chunk(start, start + tokens, torch.tensor(sequence.pages), bias))
            start += tokens
        return tuple(chunks)


def _pages(work: Work) -> int:
    return len(work.sequence.pages)
