"""Texts of others, for a log, a table or a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """What moves a cursor, ends a line or turns writing around is shown as an escape, as Python writes it."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
