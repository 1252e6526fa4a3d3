"""A model's logits for a whole text at once, without an engine around it."""

from __future__ import annotations

import torch
from torch import Tensor

from engines.embedded.models.llama import Llama
from engines.layers.attention import AttentionPlan, Chunk


@torch.inference_mode()
def logits_of(model: Llama, ids: list[int]) -> Tensor:
    """(len(ids), vocabulary) float32."""
    config, count = model.config, len(ids)
    # nothing precedes the chunk, so attention reads no pages; keys and values still need a place
    shape = (config.num_hidden_layers, 1, count, 2, config.num_key_value_heads, config.head_dim)
    places = torch.arange(count)
    plan = AttentionPlan(places, (), (Chunk(0, count, torch.zeros(1, dtype=torch.int64), None),))
    return model.logits(model.hidden(torch.tensor(ids), places, torch.empty(shape, dtype=model.dtype), plan))
