"""How many tokens of prompts a step may carry: as many as fill the card, or as few as keep a stream smooth."""

from __future__ import annotations

from engines.performance.roofline import Roofline, pairs

MIN_TOKENS = 256
"""Below this a step reads all weights for too little."""


def chunk_tokens(roofline: Roofline, longest_gap_s: float, sequences: int, context_tokens: float) -> int:
    """The card's own chunk, halved until a step that carries it beside the streams is within the gap; 0: no gap is
    promised."""
    tokens = roofline.node.gpu.chunk_tokens
    while longest_gap_s and tokens > MIN_TOKENS:
        if roofline.step_s(tokens, pairs(tokens, 0), sequences, sequences * context_tokens) <= longest_gap_s:
            break
        tokens //= 2
    return tokens
