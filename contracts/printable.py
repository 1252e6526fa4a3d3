"""Makes foreign text safe for a log, a table or a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with non-printable characters escaped like in Python; some of them move a cursor or end a line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


EXCERPT_CHARACTERS = 200


def excerpt(text: str, characters: int = EXCERPT_CHARACTERS) -> str:
    """The beginning of a file's text, printable, for a one-line error."""
    return printable(text if len(text) <= characters else f"{text[:characters]}… ({len(text):,} characters)")
