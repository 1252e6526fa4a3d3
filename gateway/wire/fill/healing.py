"""Decides which text an output must begin with: the typed part of a word, which is left out of a gap's prompt (token
healing, `engines/tokenizer/healing.py`), or a text that a client names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contracts.errors import InvalidField, UnsupportedField
from contracts.fill_in_the_middle import Healing
from contracts.misfit import shortened
from engines.drivers.parameters import STOP_TOKEN_IDS
from engines.tokenizer.sound import require_sound
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.prepared import Counted, Target

HEALED_PART = 4
"""Divisor of the output limit: the typed part of a word, which is generated again, takes at most the quotient."""
Own = Mapping[str, Any] | None
"""The request's parameters of the engines' own API; None if it has none."""


def healing_of(target: Target) -> Healing | None:
    """How the target's gaps are healed; None if they are not."""
    fills = target.tokenizer is not None and target.tokenizer.tokenizer.fill is not None
    return opens_with(target) if fills else None


def opens_with(target: Target) -> Healing | None:
    """How the target's outputs can be made to begin with a text; None if they cannot."""
    capabilities = target.capabilities
    heals = target.model.fim.healing and target.tokenizer is not None and target.tokenizer.tokenizer.heals
    if not (heals and capabilities.openings and capabilities.token_prompts):
        return None
    return "word" if capabilities.own_openings else "tokens"


def healed_from(
    prefix: str, output_tokens: int, stop: Sequence[str], target: Target, tokenizer: Tokenizer, own: Own = None
) -> int:
    """Start of the end of a prefix with which the output shall begin; the prefix's length if nothing is healed. stop:
    the client's stop texts."""
    healing = healing_of(target)
    if healing is None or output_tokens < HEALED_PART:
        return len(prefix)
    cut = tokenizer.healed(prefix) if healing == "word" else tokenizer.healed_tokens(prefix)
    return len(prefix) if _fault(prefix[cut:], output_tokens, stop, healing, tokenizer, own) else cut


def opened(counted: Counted, text: str, output_tokens: int, stop: Sequence[str], target: Target, own: Own) -> Counted:
    """A text prompt whose output must begin with a text that the client names. The rules of a healed word apply, so
    that an engine keeps no more grammars than it does for healing.

    Raises UnsupportedField if the model's engines cannot do this, InvalidField for a text on which they may fail.
    """
    require_sound(text)
    healing = opens_with(target)
    if healing is None or target.tokenizer is None:
        raise UnsupportedField(
            f"'begins_with' is not available for '{target.model.name}': it needs the model's byte-level 'tokenizer' "
            "and 'fim.healing', and engines of the driver embedded, sglang or vllm. Append the text to 'prompt'.",
            param="begins_with",
        )
    tokenizer = target.tokenizer.tokenizer
    fault = _fault(text, output_tokens, stop, healing, tokenizer, own)
    if not fault and healing == "tokens" and not tokenizer.begins_tokens(text):
        fault = "no token begins with it and continues after it"
    if fault:
        raise InvalidField(
            f"Invalid value for 'begins_with': {shortened(repr(text))}: {fault}. Remove the "
            "cause, or omit 'begins_with' and append the text to 'prompt'.",
            param="begins_with",
        )
    return counted.beginning_with(text)


def _fault(
    opening: str, output_tokens: int, stop: Sequence[str], healing: Healing, tokenizer: Tokenizer, own: Own
) -> str:
    """The reason why an engine cannot be made to begin with the text; empty if it can.

    An engine under a grammar would find a stop string in the opening, could write a control token for its text, takes
    one grammar for a request, and may fail on unprintable characters.
    """
    if healing == "tokens":
        if own and not _are_ends(own, tokenizer):
            return "the request has engine parameters, and one of them may be a grammar"
        # XGrammar refuses NUL; before 0.2.7, a pattern that begins with it ends the process
        if not opening.replace("\t", " ").isprintable():
            return "it has a character that cannot be printed"
        if tokenizer.may_begin_control(opening):
            return "a control token may begin in it"
        if any(_meets(opening, text) for text in stop):
            return "a text of 'stop' may begin in it"
    tokens, limit = tokenizer.plain_counts([opening])[0], output_tokens // HEALED_PART
    if tokens > limit:
        return f"it has {tokens} tokens; the maximum is {limit}, a quarter of 'max_tokens'"
    return ""


def _are_ends(own: Mapping[str, Any], tokenizer: Tokenizer) -> bool:
    """Whether the parameters are only ids of control tokens that end the text, which no opening contains."""
    return own.keys() <= {STOP_TOKEN_IDS} and tokenizer.control_ids.issuperset(own[STOP_TOKEN_IDS])


def _meets(opening: str, stop: str) -> bool:
    """Whether a stop string is in an opening or may begin in it."""
    sizes = range(1, min(len(stop), len(opening) + 1))
    return stop in opening or any(opening.endswith(stop[:size]) for size in sizes)
