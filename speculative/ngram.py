"""Drafts by lookup: proposes the tokens that followed the previous occurrence of the last tokens."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from speculative.draws import Draws
from speculative.tree import DraftTree

CHARACTERS = "utf-32-le" if sys.byteorder == "little" else "utf-32-be"
"""The encoding of native 32-bit numbers as characters; plain `utf-32` would swallow a leading U+FEFF."""


class NgramDrafts:
    """One growing sequence of tokens, searched from its end. A draft depends on the tokens alone, so it is a point
    mass: see `rules.accepted_prefix`.

    Each token is stored as a character, so that Python's string search does the work. A table of all n-grams of a file
    of several thousand tokens would take longer to fill than the twenty tokens after it take to generate.
    """

    def __init__(self, least: int, most: int) -> None:
        """least, most: bounds of the number of last tokens that must match; longer matches win."""
        self._least = least
        self._most = max(least, most)
        self._text = ""

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """At most `count` drafts after `tokens`, which must begin with the tokens of the last call. Ids must be below
        0x110000, like characters."""
        new = tokens[len(self._text) :]
        self._text += chr(new[0]) if len(new) == 1 else array("I", new).tobytes().decode(CHARACTERS, "surrogatepass")
        at = self._continued_at()
        if at is None:
            return []
        # if the tokens after the match run out, the draft repeats its own tokens
        drafts = list(tokens[at : at + count])
        while len(drafts) < count:
            drafts.append(drafts[len(drafts) - (len(tokens) - at)])
        return drafts

    def sample(self, tokens: Sequence[int], count: int, temperature: float) -> Draws | None:
        """Return None: these drafts are a function of the text and not sampled."""
        return None

    def tree(self, tokens: Sequence[int], count: int, depth: int, width: int) -> DraftTree | None:
        """Return None: a text has only one continuation."""
        return None

    def fork(self) -> NgramDrafts:
        """Empty drafts with the same bounds, for a sequence that continues differently."""
        return NgramDrafts(self._least, self._most)

    def _continued_at(self) -> int | None:
        """Index at which the text continues after the latest earlier occurrence of its longest possible end."""
        shortest = self._occurrence(self._least)
        if shortest is None:  # then no longer end occurs either
            return None
        longer = (self._occurrence(size) for size in range(self._most, self._least, -1))
        return next((at for at in longer if at is not None), shortest)

    def _occurrence(self, size: int) -> int | None:
        text = self._text
        if len(text) < size:
            return None
        # the occurrence must end before the last token, so that a token follows it
        start = text.rfind(text[-size:], 0, len(text) - 1)
        return None if start < 0 else start + size
