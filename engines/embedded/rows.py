"""Lays one step's work out as single rows, for the kernels that compute all tokens alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.embedded.batch import Scored, sampled_of
from engines.embedded.kv.mirror import Span
from engines.embedded.scheduler import Work
from engines.embedded.sequence import Sequence
from engines.layers.row_batch import RowBatch


@dataclass(frozen=True, slots=True)
class Rows:
    """A step; what it shares with a `Batch` means the same."""

    batch: RowBatch
    sampled: tuple[Sequence, ...]
    sampled_rows: tuple[int, ...]
    order: tuple[Span, ...]
    scored: tuple[Scored, ...]


def lay_rows(works: list[Work], page_tokens: int) -> Rows:
    """works: a sequence with drafts computes them all."""
    spans = [Span(work.sequence, work.sequence.computed, work.sequence.computed + work.tokens) for work in works]
    forks = {work.sequence: work.forks for work in works if work.forks}
    scored: list[Scored] = []
    ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    pages: list[int] = []
    firsts: list[int] = []
    for sequence, start, stop in spans:
        own = sequence.pages
        if stop - start == 1 and not sequence.drafts:
            ids.append(sequence.tokens[start])
            positions.append(start)
            slots.append(own[start // page_tokens] * page_tokens + start % page_tokens)
            firsts.append(len(pages))
        else:
            if sequence.sampling.score_prompt and (unscored := sequence.unscored(start, stop)):
                row = len(ids) - start
                scored.append(Scored(sequence, row + unscored.start, row + unscored.stop))
            ids += sequence.tokens[start:stop]
            if stop > len(sequence.tokens):
                ids += sequence.drafts
            positions += range(start, stop)
            slots += [own[at // page_tokens] * page_tokens + at % page_tokens for at in range(start, stop)]
            firsts += [len(pages)] * (stop - start)
        pages += own
    # arrays of their own: a kernel is compiled for such
    batch = RowBatch(*(np.array(numbers, np.int64) for numbers in (ids, positions, slots, pages, firsts)))
    return Rows(batch, *sampled_of(spans, forks), tuple(spans), tuple(scored))
