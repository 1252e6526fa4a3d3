"""Follows a compiled grammar for some tokens before any sequence does."""

from __future__ import annotations

import re

import numpy as np
from llguidance import LLMatcher

REHEARSED_TOKENS = 32
MAX_SAID, MAX_QUOTED = 300, 100
"""Limits of a compiler's error, and of a client's text in it, in characters. Gateways forward at most 400."""
_LISTING = re.compile(r"^\s*(\d+ \||\^+\s*$)")
_PLACE = re.compile(r"^at \d+\(\d+\): (failed to compile JSON schema: )?")
_REMOTE = re.compile(r"Resource '([^']*)' is not present in a registry")
_ENDLESS = "NoExtensionBias"
"""The compiler's term for a grammar that allows no token and is not complete."""


def rehearse(matcher: LLMatcher) -> str | None:
    """Follow the grammar from its beginning for some random tokens, the same in every run. Returns the limit that it
    exceeds, or None. This finds grammars that grow without bound from the start; later growth ends the sequence."""
    state, random = matcher.deep_copy(), np.random.default_rng(0)
    for _ in range(REHEARSED_TOKENS):
        bits = np.frombuffer(state.compute_bitmask(), dtype=np.uint8)
        allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        if state.is_error() or state.is_stopped() or not len(allowed):
            break
        state.consume_token(int(random.choice(allowed)))
    return error_of(state)


def error_of(matcher: LLMatcher) -> str | None:
    """The reason why the matcher cannot continue, in one line, or None."""
    return sentence_of(matcher.get_error()) or None if matcher.is_error() else None


def sentence_of(error: str) -> str:
    """The compiler's error in one line for the client that sent the schema. It is short enough to be forwarded, and
    omits the position in the grammar that is generated from the schema."""
    lines = [line.strip() for line in error.splitlines() if not _LISTING.match(line)]
    text = _PLACE.sub("", " ".join(" ".join(lines).split()))
    if (remote := _REMOTE.search(text)) is not None:
        return f"'$ref' points to {remote.group(1)[:MAX_QUOTED]!r}; references are followed within the schema only"
    if _ENDLESS in text:
        return "it refers to itself without end; a schema that does needs a part that can stop"
    return text[:MAX_SAID]
