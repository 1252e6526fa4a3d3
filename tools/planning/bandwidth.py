"""The floor that memory bandwidth puts under a decoding step: every step reads all weights once, whoever is in its
batch."""

from __future__ import annotations


def step_floor_s(weights_bytes: float, bytes_per_s: float) -> float:
    """No step is shorter. bytes_per_s: of all cards together."""
    return weights_bytes / bytes_per_s


def stream_tokens_per_s(weights_bytes: float, bytes_per_s: float) -> float:
    """The most that one stream alone can be given, without speculation."""
    return 1 / step_floor_s(weights_bytes, bytes_per_s)
