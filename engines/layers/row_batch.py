"""Tokens that are computed together, each at its own position of its own context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowBatch:
    """One entry per row, except for `pages`."""

    ids: Numbers
    positions: Numbers
    slots: Numbers
    """The destination of each row's keys and values: page * page_tokens + offset."""
    pages: Numbers
    """The page numbers of all contexts, one after the other."""
    firsts: Numbers
    """Index in `pages` at which each row's context begins."""
