"""The time of a prompt's prefill: on paper, from operations alone, and in chunks next to running streams.

On paper, a token costs two operations per parameter. The share of the peak that is reached (MFU) accounts for
attention, for reading the weights and for the software's own time.
"""

from __future__ import annotations

import math

from engines.performance.roofline import Roofline, pairs


def paper_tokens_per_s(flops: float, reached_share: float, parameters: float) -> float:
    """Prompt tokens per second: flops · share / (2 · parameters). flops: dense, of all GPUs together."""
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
    """Seconds of each step of one prompt until its first token, while `sequences` streams run.

    context_tokens: the context of each stream.
    """
    steps = chunks(new_tokens, chunk_tokens)
    each = new_tokens / steps
    return [
        roofline.step_s(each, pairs(each, cached_tokens + step * each), sequences, sequences * context_tokens)
        for step in range(steps)
    ]
