"""Lays out one step's work as flat tensors and attention plans.

Prompts and generated tokens are two batches, because they may be computed in different number formats. A token's batch
depends only on whether it belongs to a prompt, never on how it is computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engines.embedded.kv.mirror import ContextMirror, Span
from engines.embedded.lora.adapted_rows import AdaptedRows, adapted_rows
from engines.embedded.scheduler import Work
from engines.embedded.sequence import Sequence
from engines.layers.attention import AttentionPlan, Chunk, MirrorGroup, TokenGroup


class Scored(NamedTuple):
    """Rows of a prompt whose next-token probabilities were requested."""

    sequence: Sequence
    start: int
    stop: int
    """Rows start..stop-1 of the batch."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Tokens that are computed together, ready for the model."""

    ids: Tensor
    """(tokens,)"""
    positions: Tensor
    """(tokens,)"""
    plan: AttentionPlan
    sampled: tuple[Sequence, ...]
    """Sequences whose computed tokens catch up in this batch, so that each gets a new token. A sequence with k drafts
    appears k + 1 times in a row."""
    sampled_rows: tuple[int, ...]
    """The row of each sequence's last token, then of its drafts."""
    order: tuple[Span, ...]
    """The spans that are computed, in the order of their rows in the batch."""
    scored: tuple[Scored, ...] = ()

    def adapted(self) -> AdaptedRows | None:
        """The rows that are computed with adapters; None if no row is."""
        rows = ((span.sequence.request.adapter, span.stop - span.start) for span in self.order)
        return adapted_rows(rows, self.ids.device)


class Layout(NamedTuple):
    """The batches of one step."""

    prompts: Batch | None
    generated: Batch | None
    """Computed after the prompts, because a sequence may be in both batches."""


class BatchBuilder:
    """Builds batches for one page size."""

    def __init__(
        self,
        page_tokens: int,
        dtype: torch.dtype,
        mirror: ContextMirror | None = None,
        device: torch.device | None = None,
    ) -> None:
        """dtype: number format of attention. mirror: None to gather contexts from pages."""
        self._page_tokens = page_tokens
        self._device = device
        self._dtype = dtype
        self._mirror = mirror

    def build(self, works: list[Work]) -> Layout:
        """Lay out the works of one step. A sequence with drafts must compute all of them."""
        prompts: list[Span] = []
        resumed: list[Span] = []
        generating: list[Span] = []
        forks: dict[Sequence, tuple[Sequence, ...]] = {}
        for sequence, tokens, drafts, followers in works:
            start, stop, border = sequence.computed, sequence.computed + tokens, sequence.prompt_tokens
            if start < border:
                prompts.append(Span(sequence, start, min(stop, border)))
                if stop > border:
                    # the context is not in its pages yet, so it cannot be mirrored
                    resumed.append(Span(sequence, border, stop))
            else:
                # a preempted sequence has many tokens
                (generating if tokens == 1 or drafts else resumed).append(Span(sequence, start, stop))
            if followers:
                forks[sequence] = followers
        return Layout(self._prompts(prompts, forks), self._generated(generating, resumed, forks))

    def _prompts(self, spans: list[Span], forks: dict[Sequence, tuple[Sequence, ...]]) -> Batch | None:
        if not spans:
            return None
        rows = self._rows(spans)
        plan = AttentionPlan(rows[2], chunks=self._chunks(spans, 0))
        return Batch(rows[0], rows[1], plan, *sampled_of(spans, forks), tuple(spans), scored_of(spans))

    def _generated(
        self, generating: list[Span], resumed: list[Span], forks: dict[Sequence, tuple[Sequence, ...]]
    ) -> Batch | None:
        arranged = None if self._mirror is None else self._mirror.arrange(generating)
        if not generating and not resumed:
            return None
        groups: tuple[TokenGroup, ...] = ()
        group: MirrorGroup | None = None
        if arranged is not None:
            generating, group = arranged, self._mirrored(arranged)
        elif generating:
            generating = sorted(generating, key=lambda span: (span.stop - span.start, _pages(span)))
            groups = self._groups(generating)
        spans = [*generating, *resumed]
        rows = self._rows(spans)
        first = sum(span.stop - span.start for span in generating)
        chunks = self._chunks(resumed, first)
        plan = AttentionPlan(rows[2], groups, chunks, group)
        return Batch(rows[0], rows[1], plan, *sampled_of(spans, forks), tuple(spans))

    def _rows(self, spans: list[Span]) -> Tensor:
        """(3, tokens): ids, positions and slots."""
        return torch.tensor(tokens_of(spans, self._page_tokens), device=self._device)

    def _mirrored(self, spans: list[Span]) -> MirrorGroup:
        mirror = self._mirror
        assert mirror is not None
        stride = mirror.stride
        starts = [start for _, start, _ in spans]
        counts = [stop - start for _, start, stop in spans]
        tokens, positions = max(counts), max([stop for _, _, stop in spans])
        if tokens == 1:
            rows = [place * stride + start for place, start in enumerate(starts)]
        else:
            rows = [place * stride + at for place, (_, start, stop) in enumerate(spans) for at in range(start, stop)]
        places = (torch.tensor(rows)[:, None] + mirror.offsets).flatten()
        bias = spread = back = None
        if tokens > 1 or min(starts) + 1 < positions:
            seen = torch.tensor(starts)[:, None] + 1 + torch.arange(tokens)
            bias = _bias(torch.arange(positions) >= seen[:, None, :, None], self._dtype)
        if min(counts) < tokens:
            firsts = torch.tensor(counts).cumsum(0) - torch.tensor(counts)
            within = torch.arange(tokens)
            last = torch.tensor(counts)[:, None] - 1
            spread = (firsts[:, None] + torch.minimum(within, last)).flatten()
            back = torch.tensor([place * tokens + at for place, count in enumerate(counts) for at in range(count)])
        return MirrorGroup(len(rows), len(spans), tokens, positions, places, bias, spread, back)

    def _groups(self, spans: list[Span]) -> tuple[TokenGroup, ...]:
        """Cut the sorted spans where token counts differ or the context more than doubles, so that padding costs at
        most half of the work."""
        groups: list[TokenGroup] = []
        first = row = 0
        for stop in range(1, len(spans) + 1):
            tokens = spans[first].stop - spans[first].start
            if (
                stop == len(spans)
                or spans[stop].stop - spans[stop].start > tokens
                or _pages(spans[stop]) > 2 * max(_pages(spans[first]), 4)
            ):
                groups.append(self._group(row, spans[first:stop]))
                row += tokens * (stop - first)
                first = stop
        return tuple(groups)

    def _group(self, row: int, spans: list[Span]) -> TokenGroup:
        width = _pages(spans[-1])  # sorted, so the last has the most pages
        tokens = spans[0].stop - spans[0].start
        numbers: list[int] = []
        for span in spans:
            pages = span.sequence.pages
            numbers += pages
            numbers += [0] * (width - len(pages))
        # a draft attends to the drafts before it
        seen = torch.tensor([span.start + 1 for span in spans])[:, None] + torch.arange(tokens)
        hidden = torch.arange(width * self._page_tokens) >= seen[:, None, :, None]
        bias = _bias(hidden, self._dtype).to(self._device)
        return TokenGroup(row, row + tokens * len(spans), tokens, torch.tensor(numbers, device=self._device), bias)

    def _chunks(self, spans: list[Span], row: int) -> tuple[Chunk, ...]:
        chunks: list[Chunk] = []
        for sequence, start, stop in spans:
            bias = numbers = None
            if start:
                # a prompt's pages may reach beyond the tokens that are computed now
                pages = sequence.pages[: -(-stop // self._page_tokens)]
                numbers = torch.tensor(pages, device=self._device)
                positions = torch.arange(len(pages) * self._page_tokens)
                hidden = positions > torch.arange(start, stop)[:, None]
                bias = _bias(hidden, self._dtype).to(self._device)
            chunks.append(Chunk(row, row + stop - start, numbers, bias, self._dtype))
            row += stop - start
        return tuple(chunks)


def tokens_of(spans: Iterable[Span], page_tokens: int) -> tuple[list[int], list[int], list[int]]:
    """The id, position and slot of keys and values (page * page_tokens + offset) of every token to compute."""
    ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    for sequence, start, stop in spans:
        pages = sequence.pages
        if stop - start == 1 and not sequence.drafts:
            ids.append(sequence.tokens[start])
            positions.append(start)
            slots.append(pages[start // page_tokens] * page_tokens + start % page_tokens)
            continue
        ids += sequence.tokens[start:stop]
        if stop > len(sequence.tokens):
            ids += sequence.drafts
        positions += range(start, stop)
        slots += [pages[at // page_tokens] * page_tokens + at % page_tokens for at in range(start, stop)]
    return ids, positions, slots


def scored_of(spans: list[Span]) -> tuple[Scored, ...]:
    """The rows whose next-token probabilities were requested. spans: in the order of their rows in the batch."""
    scored: list[Scored] = []
    row = 0
    for sequence, start, stop in spans:
        if sequence.sampling.score_prompt and (unscored := sequence.unscored(start, stop)):
            scored.append(Scored(sequence, row + unscored.start - start, row + unscored.stop - start))
        row += stop - start
    return tuple(scored)


def sampled_of(
    spans: list[Span], forks: dict[Sequence, tuple[Sequence, ...]]
) -> tuple[tuple[Sequence, ...], tuple[int, ...]]:
    """The sequences whose computed tokens catch up, and their rows to sample from; see `Batch`."""
    sampled: list[Sequence] = []
    rows: list[int] = []
    row = 0
    for sequence, start, stop in spans:
        row += stop - start
        drafts = len(sequence.drafts)
        if stop != len(sequence.tokens) + drafts:
            continue
        if not drafts:
            sampled.append(sequence)
            rows.append(row - 1)
        else:
            sampled += [sequence] * (1 + drafts)
            rows += range(row - 1 - drafts, row)
        followers = forks.get(sequence, ())
        sampled += followers
        rows += [row - 1] * len(followers)
    return tuple(sampled), tuple(rows)


def _bias(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `hidden` is false, -inf where it is true."""
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))


def _pages(span: Span) -> int:
    return len(span.sequence.pages)
