"""Formats text for people: rows as aligned columns, and sentences as wrapped lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from contracts.printable import printable

WIDTH = 100


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The head, then a line for each row; each column is as wide as its widest cell. Control characters are replaced:
    names come from users, and must not move the terminal's cursor."""
    every = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in every) for at in range(len(head))]
    for row in every:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def wrapped(head: str, text: str) -> list[str]:
    """The lines of a text after its head; words are not cut."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=head, subsequent_indent=" " * 9, break_long_words=False, break_on_hyphens=False
    )
