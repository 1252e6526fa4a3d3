"""Makes foreign text safe for a log, a table or a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with characters that move a cursor, end a line or reverse writing escaped, as Python writes them."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


EXCERPT_CHARACTERS = 200


def excerpt(text: str, characters: int = EXCERPT_CHARACTERS) -> str:
    """The beginning of a text from a file, printable, for an error's one line."""
    return printable(text if len(text) <= characters else f"{text[:characters]}… ({len(text):,} characters)")
