"""Measures how well a model predicts text: bits per byte, top-1 accuracy, and loss by position."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from tools.training.model import Llama


class TextScores(NamedTuple):
    """Scores over all tokens of some texts."""

    bits_per_byte: float
    top1: float
    tokens: int


@torch.inference_mode()
def score_texts(model: Llama, tokenizer: Tokenizer, texts: Sequence[str], context: int) -> TextScores:
    """Predict every token of every text from at most `context` before it: each text is cut into stretches of that many,
    and a stretch sees only the last token of the one before it (at the start, the end-of-text token)."""
    nats = right = tokens = 0.0
    size = 0
    for text in texts:
        ids = [0, *tokenizer.encode(text, add_special_tokens=False).ids]
        size += len(text.encode())
        for start in range(0, len(ids) - 1, context):
            losses, hits = _score(model, torch.tensor(ids[start : start + context + 1]))
            nats += float(losses.sum())
            right += float(hits.sum())
            tokens += len(losses)
    return TextScores(nats / math.log(2) / size, right / tokens, int(tokens))


@torch.inference_mode()
def score_positions(
    model: Llama, tokenizer: Tokenizer, texts: Sequence[str], edges: Sequence[int], sequences: int
) -> list[float]:
    """Mean loss in nats between the edges (positions, ascending; the last is the context).

    The texts form a ring; sequences begin at equal distances around it, so every piece of text occurs at several
    positions if sequences * context exceeds the ring.
    """
    ring: list[int] = []
    for text in texts:
        ring += [0, *tokenizer.encode(text, add_special_tokens=False).ids]
    context = edges[-1]
    sums = [0.0] * (len(edges) - 1)
    for ids in _around(ring, context + 1, sequences):
        losses, _ = _score(model, torch.tensor(ids))
        for index, (low, high) in enumerate(itertools.pairwise(edges)):
            sums[index] += float(losses[low:high].mean()) / sequences
    return sums


def _around(ring: list[int], length: int, count: int) -> Iterator[list[int]]:
    doubled = ring * (length // len(ring) + 2)
    for number in range(count):
        start = number * len(ring) // count
        yield doubled[start : start + length]


def _score(model: Llama, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of each token but the first, and whether it was the likeliest."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model(ids[None, :-1])[0]
    losses, hits = [], []
    for start in range(0, len(hidden), 1024):  # all scores of a long context at once would be 130 MB
        scores = model.scores(hidden[start : start + 1024].float())
        wanted = ids[1 + start : 1 + start + 1024]
        losses.append(functional.cross_entropy(scores, wanted, reduction="none"))
        hits.append(scores.argmax(-1) == wanted)
    return torch.cat(losses), torch.cat(hits)
