"""How many prompt tokens a step may carry: as many as fill the GPU, or as few as keep streams smooth."""

from __future__ import annotations

from engines.performance.roofline import Roofline, pairs

MIN_TOKENS = 256
"""A smaller chunk does too little work for reading all weights."""


def chunk_tokens(roofline: Roofline, longest_gap_s: float, sequences: int, context_tokens: float) -> int:
    """The GPU's own chunk, halved until a step with it and the streams is within the gap. longest_gap_s: 0 if no gap is
    promised."""
    tokens = roofline.node.gpu.chunk_tokens
    while longest_gap_s and tokens > MIN_TOKENS:
        if roofline.step_s(tokens, pairs(tokens, 0), sequences, sequences * context_tokens) <= longest_gap_s:
            break
        tokens //= 2
    return tokens
