"""The texts where two prompts first differ, only for organizations that store prompts (`store_prompts`)."""

from __future__ import annotations

import msgspec

from contracts.generation import ChatPrompt, TextPrompt
from gateway.prefixes.difference import Difference, Part
from gateway.prefixes.parts import text_of

BEFORE_CHARACTERS = 60
"""Characters of the common text before the difference."""
CHARACTERS = 200
"""Limit for each text."""
KEPT_CHARACTERS = 16_384
"""Characters of a system prompt kept in memory; a later difference is not shown."""


class Excerpt(msgspec.Struct, frozen=True):
    """Two texts with a common beginning. earlier: None if only its digest was kept."""

    earlier: str | None
    later: str


def system_text(prompt: ChatPrompt | TextPrompt) -> str | None:
    """The kept beginning of a conversation's system prompt; None if it has none."""
    if isinstance(prompt, TextPrompt) or not prompt.messages or prompt.messages[0].get("role") != "system":
        return None
    return text_of(prompt.messages[0].get("content"))[:KEPT_CHARACTERS]


def excerpt(found: Difference, earlier: str | None, prompt: ChatPrompt | TextPrompt) -> Excerpt | None:
    """The prompt's text at the difference. earlier: the system prompt with which it is compared; None if not kept.
    Returns None if there is no text: for a prompt outside conversations, for a removed part, and for texts that are
    equal as far as they are kept."""
    if isinstance(prompt, TextPrompt):
        return None
    if found.part is Part.SYSTEM:
        return _of_systems(earlier, system_text(prompt))
    if found.number is None:
        return None
    messages = prompt.messages[1:] if system_text(prompt) is not None else prompt.messages
    parts = prompt.tools or () if found.part is Part.TOOLS else messages
    if found.number >= len(parts):
        return None
    return Excerpt(None, msgspec.json.encode(parts[found.number]).decode()[:CHARACTERS])


def _of_systems(earlier: str | None, later: str | None) -> Excerpt | None:
    if later is None:
        return None
    if earlier is None:
        return Excerpt(None, later[:CHARACTERS])
    if earlier == later:
        return None
    at = next((at for at, (one, other) in enumerate(zip(earlier, later, strict=False)) if one != other), None)
    begin = max((min(len(earlier), len(later)) if at is None else at) - BEFORE_CHARACTERS, 0)
    return Excerpt(earlier[begin : begin + CHARACTERS], later[begin : begin + CHARACTERS])
