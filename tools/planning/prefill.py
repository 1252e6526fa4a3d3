"""How long a prompt's prefill takes: on paper, from operations alone, and in chunks beside running streams.

On paper a token costs two operations per parameter; attention, reading the weights and the software's own time are left
out, and their place is taken by a share of the peak that is reached (MFU).
"""

from __future__ import annotations

import math

from engines.performance.roofline import Roofline, pairs


def paper_tokens_per_s(flops: float, reached_share: float, parameters: float) -> float:
    """Prompt tokens a second: flops · share / (2 · parameters). flops: dense, of all cards together."""
    return flops * reached_share / (2 * parameters)


def chunks(new_tokens: float, chunk_tokens: int) -> int:
    """Steps that a prompt is spread over."""
    return max(math.ceil(new_tokens / chunk_tokens), 1)


def prefill_steps_s(
    roofline: Roofline,
    new_tokens: float,
    cached_tokens: float,
    chunk_tokens: int,
    sequences: int = 0,
    context_tokens: float = 0,
) -> list[float]:
    """Each step of one prompt until its first token, `sequences` streams running beside it.

    context_tokens: of each of these streams.
    """
    steps = chunks(new_tokens, chunk_tokens)
    each = new_tokens / steps
    return [
        roofline.step_s(each, pairs(each, cached_tokens + step * each), sequences, sequences * context_tokens)
        for step in range(steps)
    ]
