"""Decides which text an output must begin with: the typed part of a word, which is left out of a gap's prompt (token
healing, `engines/tokenizer/healing.py`), or the one that a client names."""

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
"""The typed part of a word is generated again; it takes at most this part (1/n) of the output limit."""
Own = Mapping[str, Any] | None
"""The request's parameters of the engines' own API; None: none."""


def healing_of(target: Target) -> Healing | None:
    """How the target's gaps are healed; None: not at all."""
    fills = target.tokenizer is not None and target.tokenizer.tokenizer.fill is not None
    return opens_with(target) if fills else None


def opens_with(target: Target) -> Healing | None:
    """The texts with which the target's outputs can be made to begin; None: with none."""
    able = target.capabilities
    heals = target.model.fim.healing and target.tokenizer is not None and target.tokenizer.tokenizer.heals
    if not (heals and able.openings and able.token_prompts):
        return None
    return "word" if able.own_openings else "tokens"


def healed_from(
    prefix: str, output_tokens: int, stop: Sequence[str], target: Target, tokenizer: Tokenizer, own: Own = None
) -> int:
    """Start of the end of a prefix with which the output shall begin; the prefix's length: nothing is healed. stop: the
    client's."""
    healing = healing_of(target)
    if healing is None or output_tokens < HEALED_PART:
        return len(prefix)
    cut = tokenizer.healed(prefix) if healing == "word" else tokenizer.healed_tokens(prefix)
    return len(prefix) if _fault(prefix[cut:], output_tokens, stop, healing, tokenizer, own) else cut


def opened(counted: Counted, text: str, output_tokens: int, stop: Sequence[str], target: Target, own: Own) -> Counted:
    """A text's prompt whose output must begin with a text that the client names, under the rules of a healed word, so
    that an engine keeps no more grammars than it does for healing.

    Raises UnsupportedField where the model's engines cannot, InvalidField for a text that they may fail on.
    """
    require_sound(text)
    able = opens_with(target)
    if able is None or target.tokenizer is None:
        raise UnsupportedField(
            f"'begins_with' is not available for '{target.model.name}': it needs the model's byte-level 'tokenizer' "
            "and 'fim.healing', and engines of the driver embedded, sglang or vllm. Append the text to 'prompt'.",
            param="begins_with",
        )
    tokenizer = target.tokenizer.tokenizer
    found = _fault(text, output_tokens, stop, able, tokenizer, own)
    if not found and able == "tokens" and not tokenizer.begins_tokens(text):
        found = "no token begins with it and continues after it"
    if found:
        raise InvalidField(
            f"Invalid value for 'begins_with': {shortened(repr(text))}: {found}. Remove the "
            "cause, or omit 'begins_with' and append the text to 'prompt'.",
            param="begins_with",
        )
    return counted.beginning_with(text)


def _fault(
    opening: str, output_tokens: int, stop: Sequence[str], healing: Healing, tokenizer: Tokenizer, own: Own
) -> str:
    """The reason why no engine can be made to begin with the text; empty: it can.

    An engine that is forced by a grammar would find a stop string in the opening, could write a control token for its
    text, takes one grammar for a request, and may fail on unprintable characters.
    """
    if healing == "tokens":
        if own and not _are_ends(own, tokenizer):
            return "the request has engine parameters, and one of them may be a grammar"
        # XGrammar refuses NUL, and before 0.2.7 ends its process for a pattern that begins with it
        if not opening.replace("\t", " ").isprintable():
            return "it has a character that cannot be printed"
        if tokenizer.may_begin_control(opening):
            return "a control token may begin in it"
        if any(_meets(opening, text) for text in stop):
            return "a text of 'stop' may begin in it"
    tokens, most = tokenizer.plain_counts([opening])[0], output_tokens // HEALED_PART
    if tokens > most:
        return f"it has {tokens} tokens; the maximum is {most}, a quarter of 'max_tokens'"
    return ""


def _are_ends(own: Mapping[str, Any], tokenizer: Tokenizer) -> bool:
    """Nothing but ids of control tokens that end the text: no opening has one."""
    return own.keys() <= {STOP_TOKEN_IDS} and tokenizer.control_ids.issuperset(own[STOP_TOKEN_IDS])


def _meets(opening: str, stop: str) -> bool:
    """A stop string is in an opening, or may begin in it."""
    sizes = range(1, min(len(stop), len(opening) + 1))
    return stop in opening or any(opening.endswith(stop[:size]) for size in sizes)
