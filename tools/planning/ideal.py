"""What the data sheet would allow, before any software: the bounds that a replica's real figures are read against."""

from __future__ import annotations

import msgspec

from engines.performance.roofline import Node
from tools.planning.bandwidth import step_floor_s, stream_tokens_per_s
from tools.planning.prefill import paper_tokens_per_s


class Ideal(msgspec.Struct, frozen=True):
    """Of one replica."""

    prefill_tokens_per_s: float
    """Two operations a parameter and token, at the whole peak."""
    step_floor_s: float
    """Every step reads all weights."""
    stream_tokens_per_s: float
    """The most that one stream alone is given, without speculation."""


def ideal(node: Node) -> Ideal:
    """No efficiency in it."""
    peak = node.gpu.peak_flops(node.model.weight_bytes) * node.gpus
    bytes_per_s = node.gpu.memory_bytes_per_s * node.gpus
    return Ideal(
        prefill_tokens_per_s=paper_tokens_per_s(peak, 1.0, node.model.parameters),
        step_floor_s=step_floor_s(node.model.weights_bytes, bytes_per_s),
        stream_tokens_per_s=stream_tokens_per_s(node.model.weights_bytes, bytes_per_s),
    )
