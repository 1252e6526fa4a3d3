"""Checks that several slices share. All are pure and strict: what they cannot read is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable


def plain(text: str) -> str:
    """Lower case, one space between words, no quotation marks or closing punctuation around it."""
    return " ".join(text.lower().split()).strip(" .!\"'`*")


def holds_word(text: str, word: str) -> bool:
    """Whether the word, or the words, occur whole, in any case."""
    return re.search(rf"(?<!\w){re.escape(word.lower())}(?!\w)", text.lower()) is not None


def names_only(value: str, others: Iterable[str], answer: str, *, most_words: int = 40) -> bool:
    """Whether a short answer names the value and none of the others (an answer that lists all is no answer)."""
    if len(answer.split()) > most_words or not holds_word(answer, value):
        return False
    return not any(holds_word(answer, other) for other in others if other.lower() not in value.lower())


def last_number(answer: str) -> int | None:
    """The last whole number in a text, a minus sign before it included."""
    found = re.findall(r"(?<![\d.])-?\d+(?:,\d{3})*(?![\d.]*\d)", answer.replace("\u2212", "-"))
    return int(found[-1].replace(",", "")) if found else None
