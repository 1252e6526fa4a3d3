"""The three classes of prompt length that promises, reports and metrics use."""

from __future__ import annotations

from enum import StrEnum

MEDIUM_TOKENS = 4_096
LONG_TOKENS = 16_384


class LengthClass(StrEnum):
    """By prompt tokens, cached ones included."""

    SHORT = "short"
    """Fewer than 4,096."""
    MEDIUM = "medium"
    """From 4,096, and fewer than 16,384."""
    LONG = "long"
    """From 16,384."""


def length_class(prompt_tokens: int) -> LengthClass:
    """The class of a prompt of this many tokens."""
    if prompt_tokens < MEDIUM_TOKENS:
        return LengthClass.SHORT
    return LengthClass.MEDIUM if prompt_tokens < LONG_TOKENS else LengthClass.LONG
