"""Decides how much of a prefix is left to the output (token healing, `engines/tokenizer/healing.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.prepared import Target

HEALED_PART = 4
"""The typed part of a word is generated again; it takes at most this part (1/n) of the output limit."""


def healed_from(
    prefix: str, output_tokens: int, stop: Sequence[str], target: Target, tokenizer: Tokenizer, *, own: bool
) -> int:
    """Start of the end of a prefix with which the output shall begin; the prefix's length: nothing is healed.

    An engine that is forced by a grammar would find a stop string in the opening, could write a control token for its
    text, takes one grammar for a request, and may fail on characters that nobody prints. stop: the client's. own: the
    request has parameters of the engine's own API, and a grammar may be one.
    """
    able, most_tokens = target.capabilities, output_tokens // HEALED_PART
    if not (target.model.fim.healing and able.openings and able.token_prompts and most_tokens):
        return len(prefix)
    if able.own_openings:
        cut = tokenizer.healed(prefix)
    elif own:
        return len(prefix)
    else:
        cut = tokenizer.healed_tokens(prefix)
        opening = prefix[cut:]
        # XGrammar refuses NUL, and before 0.2.7 ends its process for a pattern that begins with it
        if not opening.replace("\t", " ").isprintable() or tokenizer.may_begin_control(opening):
            return len(prefix)
        if any(_meets(opening, text) for text in stop):
            return len(prefix)
    return cut if tokenizer.plain_counts([prefix[cut:]])[0] <= most_tokens else len(prefix)


def _meets(opening: str, stop: str) -> bool:
    """A stop string is in an opening, or may begin in it."""
    sizes = range(1, min(len(stop), len(opening) + 1))
    return stop in opening or any(opening.endswith(stop[:size]) for size in sizes)
