"""The lower bound that memory bandwidth sets for a decode step: every step reads all weights once, for any batch."""

from __future__ import annotations


def step_floor_s(weights_bytes: float, bytes_per_s: float) -> float:
    """Shortest possible step. bytes_per_s: of all GPUs together."""
    return weights_bytes / bytes_per_s


def stream_tokens_per_s(weights_bytes: float, bytes_per_s: float) -> float:
    """Highest rate of one stream alone, without speculation."""
    return 1 / step_floor_s(weights_bytes, bytes_per_s)
