"""The limits of a replica's hardware according to its data sheet, to compare with its real figures."""

from __future__ import annotations

import msgspec

from engines.performance.roofline import Node
from tools.planning.bandwidth import step_floor_s, stream_tokens_per_s
from tools.planning.prefill import paper_tokens_per_s


class Ideal(msgspec.Struct, frozen=True):
    """The limits of one replica."""

    prefill_tokens_per_s: float
    """Two operations per parameter and token, at peak."""
    step_floor_s: float
    """Every step reads all weights."""
    stream_tokens_per_s: float
    """Highest rate of one stream alone, without speculation."""


def ideal(node: Node) -> Ideal:
    """The limits at an efficiency of 1."""
    peak = node.gpu.peak_flops(node.model.weight_bytes) * node.gpus
    bytes_per_s = node.gpu.memory_bytes_per_s * node.gpus
    return Ideal(
        prefill_tokens_per_s=paper_tokens_per_s(peak, 1.0, node.model.parameters),
        step_floor_s=step_floor_s(node.model.weights_bytes, bytes_per_s),
        stream_tokens_per_s=stream_tokens_per_s(node.model.weights_bytes, bytes_per_s),
    )
