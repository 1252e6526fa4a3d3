"""Masks the tokens that grammars forbid, for all guided rows of a step at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engines.embedded.grammar.guide import GuideState


def mask_(logits: Tensor, rows: list[int], guided: Sequence[tuple[GuideState, Sequence[int]]]) -> None:
    """Set the logits of forbidden tokens to -inf, in place.

    logits: (n, vocabulary). guided: each sequence's state in its grammar and its drafts; `rows` has one entry for its
    next token and one for the token after each draft. A row whose grammar allows nothing, which sets
    `GuideState.error`, is left unchanged, because a row of -inf alone has no distribution.
    """
    vocabulary = logits.shape[1]
    words = torch.zeros(len(rows), -(-vocabulary // 32), dtype=torch.int32)
    first = 0
    for state, drafts in guided:
        state.fill(words[first : first + 1 + len(drafts)], drafts)
        first += 1 + len(drafts)
    bits = np.unpackbits(words.numpy().view(np.uint8), axis=1, count=vocabulary, bitorder="little")
    allowed = torch.from_numpy(bits.view(np.bool_))
    forbidden = ~allowed & allowed.any(-1, keepdim=True)
    if len(rows) == logits.shape[0]:
        logits.masked_fill_(forbidden.to(logits.device), float("-inf"))
    else:
        index = torch.tensor(rows, device=logits.device)
        logits[index] = logits[index].masked_fill(forbidden.to(logits.device), float("-inf"))
