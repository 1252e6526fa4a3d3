"""Memory for LoRA adapters. At its start, an engine allocates equal slots for as many adapters as it computes at once,
even if no adapter is loaded."""

from __future__ import annotations

from engines.performance.model_shape import ModelShape

ADAPTERS_IN_BATCH = 8
"""Adapters whose requests an engine computes at once; SGLang's own choice."""
NUMBER_BYTES = 2
"""Adapters are BF16, whatever the format of the model's weights."""


def adapters_in_batch(max_adapters: int) -> int:
    """Adapters that a replica computes at once."""
    return min(ADAPTERS_IN_BATCH, max_adapters)


def adapter_bytes(shape: ModelShape, rank: int, max_adapters: int, gpu_count: int) -> float:
    """Bytes on all GPUs together.

    In a layer that is split by its outputs (q, k, v, gate, up), A is on every GPU and B is split. In o and down, which
    are split by their inputs, it is the other way round.
    """
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    attention = shape.hidden * (2 * queries + 2 * keys)
    # a layer's other parameters are the MLP's three matrices; the embeddings, which are included here, are few
    between = max(shape.parameters / shape.layers - attention, 0.0) / (3 * shape.hidden)
    on_every_gpu = 7 * shape.hidden
    split = 2 * queries + 2 * keys + 3 * between
    per_rank = shape.layers * (gpu_count * on_every_gpu + split)
    return adapters_in_batch(max_adapters) * rank * per_rank * NUMBER_BYTES
