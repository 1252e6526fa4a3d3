"""Follows a compiled grammar for a while, before any sequence does."""

from __future__ import annotations

import numpy as np
from llguidance import LLMatcher

REHEARSED_TOKENS = 32


def rehearse(matcher: LLMatcher) -> str | None:
    """Follow the grammar from its beginning for some tokens chosen by chance, always the same. Returns the limit it
    runs into, or None. Finds what grows without bound from the start; what explodes later ends its sequence when it
    does."""
    state, random = matcher.deep_copy(), np.random.default_rng(0)
    for _ in range(REHEARSED_TOKENS):
        bits = np.frombuffer(state.compute_bitmask(), dtype=np.uint8)
        allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        if state.is_error() or state.is_stopped() or not len(allowed):
            break
        state.consume_token(int(random.choice(allowed)))
    return error_of(state)


def error_of(matcher: LLMatcher) -> str | None:
    """Why it cannot go on, in one line, or None."""
    return " ".join(matcher.get_error().split()) or None if matcher.is_error() else None
