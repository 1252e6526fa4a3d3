"""Drafts by looking back: what followed the last tokens when they occurred before is guessed to follow again."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from speculative.draws import Draws
from speculative.tree import DraftTree

CHARACTERS = "utf-32-le" if sys.byteorder == "little" else "utf-32-be"
"""How the machine's own 32-bit numbers are characters; the plain `utf-32` would swallow a first U+FEFF."""


class NgramDrafts:
    """One growing sequence of tokens, searched from its end. A guess depends on the tokens alone, so it is a point
    mass: see `rules.accepted_prefix`.

    A character stands for each token, so that Python's own search does the work: a table of all n-grams costs more to
    fill for a file of some thousand tokens than the twenty that are generated behind it.
    """

    def __init__(self, least: int, most: int) -> None:
        """least, most: how many last tokens must match; longer matches win."""
        self._least = least
        self._most = max(least, most)
        self._text = ""

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """At most `count` guesses at what follows `tokens`, which must begin with the tokens of the last call. Ids lie
        below 0x110000, as characters do."""
        new = tokens[len(self._text) :]
        self._text += chr(new[0]) if len(new) == 1 else array("I", new).tobytes().decode(CHARACTERS, "surrogatepass")
        at = self._continued_at()
        if at is None:
            return []
        # a match that overlaps the end repeats itself: the guess reads on in what it guessed
        drafts = list(tokens[at : at + count])
        while len(drafts) < count:
            drafts.append(drafts[len(drafts) - (len(tokens) - at)])
        return drafts

    def sample(self, tokens: Sequence[int], count: int, temperature: float) -> Draws | None:
        """None: these guesses are not drawn, they are what the text says."""
        return None

    def tree(self, tokens: Sequence[int], count: int, depth: int, width: int) -> DraftTree | None:
        """None: a text goes on in one way only."""
        return None

    def fork(self) -> NgramDrafts:
        """The same for a sequence that goes on differently."""
        return NgramDrafts(self._least, self._most)

    def _continued_at(self) -> int | None:
        """Where the text goes on behind the latest earlier occurrence of its longest possible end."""
        shortest = self._occurrence(self._least)
        if shortest is None:  # then no longer end occurs either
            return None
        longer = (self._occurrence(size) for size in range(self._most, self._least, -1))
        return next((at for at in longer if at is not None), shortest)

    def _occurrence(self, size: int) -> int | None:
        text = self._text
        if len(text) < size:
            return None
        # its end lies before the last token: something must follow it
        start = text.rfind(text[-size:], 0, len(text) - 1)
        return None if start < 0 else start + size
