"""Computes log probabilities of a prompt's own tokens, for clients that measure the likelihood of a text."""

from __future__ import annotations

from math import isfinite

from torch import Tensor

from engines.embedded.batch import Scored
from engines.embedded.models.llama import Llama
from engines.embedded.sampler import report

ROWS = 32
"""Rows of logits computed at once; those of a whole chunk could take hundreds of megabytes."""


def score_prompts(model: Llama, hidden: Tensor, scored: tuple[Scored, ...]) -> None:
    """Add to each sequence's `prompt_scores`; a score that is not finite marks the sequence as broken.

    hidden: (tokens, width), the states of the whole batch.
    """
    for sequence, first, last in scored:
        for start in range(first, last, ROWS):
            stop = min(start + ROWS, last)
            done = len(sequence.prompt_scores)
            next_ids = sequence.tokens[done + 1 : done + 1 + stop - start]
            count = sequence.sampling.logprobs or 0
            scores = report(model.logits(hidden[start:stop]).log_softmax(-1), next_ids, [count] * len(next_ids))
            sequence.prompt_scores += scores
            sequence.is_broken = sequence.is_broken or not all(isfinite(score.logprob) for score in scores)
