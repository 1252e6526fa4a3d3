"""Computes a model's logits for whole texts at once, without an engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from engines.embedded.models.llama import Llama
from engines.layers.attention import AttentionPlan, Chunk


def logits_of(model: Llama, ids: list[int]) -> Tensor:
    """The logits after each token, (len(ids), vocabulary) float32."""
    return logits_of_all(model, [ids])[0]


@torch.inference_mode()
def logits_of_all(model: Llama, texts: Sequence[list[int]]) -> list[Tensor]:
    """The logits of several texts from one pass, which is faster for short texts."""
    hidden, _ = states_of(model, texts, ())
    return list(torch.split(model.logits(hidden), [len(text) for text in texts]))


@torch.no_grad()
def states_of(model: Llama, texts: Sequence[list[int]], layers: tuple[int, ...]) -> tuple[Tensor, list[Tensor]]:
    """The normalised final states of all texts' tokens, (tokens, hidden), and the outputs of `layers`."""
    config, device = model.config, model.device
    ends = list(itertools.accumulate(map(len, texts)))
    chunks = [
        # nothing precedes a chunk, so attention reads no pages; keys and values still need a slot
        Chunk(end - len(text), end, None, None)
        for text, end in zip(texts, ends, strict=True)
    ]
    ids = torch.tensor([id_ for text in texts for id_ in text], device=device)
    positions = torch.cat([torch.arange(len(text), device=device) for text in texts])
    shape = (config.num_hidden_layers, 1, len(ids), 2, config.num_key_value_heads, config.head_dim)
    plan = AttentionPlan(torch.arange(len(ids), device=device), (), tuple(chunks))
    pages = torch.empty(shape, dtype=model.dtype, device=device)
    return model.hidden_and_outputs(ids, positions, pages, plan, layers)


def batches(texts: Iterable[Sequence[int]], most_tokens: int) -> Iterator[list[int]]:
    """The indices of the texts, in runs of at most `most_tokens`; a longer text is a run of its own."""
    run: list[int] = []
    total = 0
    for index, text in enumerate(texts):
        if run and total + len(text) > most_tokens:
            yield run
            run, total = [], 0
        run.append(index)
        total += len(text)
    if run:
        yield run
