"""Lays out one step's work as single rows, for kernels that compute all tokens in the same way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.embedded.batch import Scored, sampled_of, scored_of, tokens_of
from engines.embedded.kv.mirror import Span
from engines.embedded.scheduler import Work
from engines.embedded.sequence import Sequence
from engines.layers.row_batch import RowBatch


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a step. Fields shared with `Batch` have the same meaning."""

    batch: RowBatch
    sampled: tuple[Sequence, ...]
    sampled_rows: tuple[int, ...]
    order: tuple[Span, ...]
    scored: tuple[Scored, ...]


def lay_rows(works: list[Work], page_tokens: int) -> Rows:
    """Lay out the works. A sequence with drafts must compute all of them."""
    spans = [Span(work.sequence, work.sequence.computed, work.sequence.computed + work.tokens) for work in works]
    forks = {work.sequence: work.forks for work in works if work.forks}
    pages: list[int] = []
    firsts: list[int] = []
    for sequence, start, stop in spans:
        firsts += [len(pages)] * (stop - start)
        pages += sequence.pages
    # separate contiguous arrays, for which the kernel is compiled
    batch = RowBatch(*(np.array(numbers, np.int64) for numbers in (*tokens_of(spans, page_tokens), pages, firsts)))
    return Rows(batch, *sampled_of(spans, forks), tuple(spans), scored_of(spans))
