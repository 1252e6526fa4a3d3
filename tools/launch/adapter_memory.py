"""What an engine keeps for LoRA adapters: places of one size for as many as it computes at once, taken at its start
whether an adapter is there or not."""

from __future__ import annotations

from engines.performance.model_shape import ModelShape

ADAPTERS_IN_BATCH = 8
"""Adapters whose requests an engine computes at once; SGLang's own choice."""
NUMBER_BYTES = 2
"""They are BF16, whatever the model's weights are."""


def adapters_in_batch(max_adapters: int) -> int:
    """Adapters computed at once, no more than a replica is given."""
    return min(ADAPTERS_IN_BATCH, max_adapters)


def adapter_bytes(shape: ModelShape, rank: int, max_adapters: int, gpu_count: int) -> float:
    """On all GPUs together.

    Of each layer that is split by its outputs (q, k, v, gate, up) A is on every GPU and B is split; of o and down,
    split by their inputs, it is the other way round.
    """
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    attention = shape.hidden * (2 * queries + 2 * keys)
    # a layer's parameters that are not attention's are the MLP's three matrices; embeddings, counted in, are few
    between = max(shape.parameters / shape.layers - attention, 0.0) / (3 * shape.hidden)
    on_every_gpu = 7 * shape.hidden
    split = 2 * queries + 2 * keys + 3 * between
    per_rank = shape.layers * (gpu_count * on_every_gpu + split)
    return adapters_in_batch(max_adapters) * rank * per_rank * NUMBER_BYTES
