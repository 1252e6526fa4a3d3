"""Rows as aligned text, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from contracts.printable import printable


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The head, then a line for each row; each column as wide as its widest cell. Names are others':
    nothing in them moves the terminal's cursor."""
    every = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in every) for at in range(len(head))]
    for row in every:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
