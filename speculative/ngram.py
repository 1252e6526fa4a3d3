"""Drafts by looking back: what followed the last tokens when they occurred before is guessed to follow again."""

from __future__ import annotations

from collections.abc import Sequence

from speculative.draws import Draws
from speculative.tree import DraftTree


class NgramDrafts:
    """The index of one growing sequence of tokens. A guess depends on the tokens alone, so it is a point mass: see
    `rules.accepted_prefix`."""

    def __init__(self, least: int, most: int) -> None:
        """least, most: how many last tokens must match; longer matches win."""
        self._least = least
        self._most = max(least, most)
        self._continued_at: dict[tuple[int, ...], int] = {}
        self._indexed = 0
        """Continuations at positions below this are in the index."""

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """At most `count` guesses at what follows `tokens`, which must begin with the tokens of the last call."""
        self._index(tokens)
        for size in range(self._most, self._least - 1, -1):
            at = self._continued_at.get(tuple(tokens[-size:])) if len(tokens) >= size else None
            if at is not None:
                # a match that overlaps the end repeats itself: the guess reads on in what it guessed
                drafts = list(tokens[at : at + count])
                while len(drafts) < count:
                    drafts.append(drafts[len(drafts) - (len(tokens) - at)])
                return drafts
        return []

    def sample(self, tokens: Sequence[int], count: int, temperature: float) -> Draws | None:
        """None: these guesses are not drawn, they are what the text says."""
        return None

    def tree(self, tokens: Sequence[int], count: int, depth: int, width: int) -> DraftTree | None:
        """None: a text goes on in one way only."""
        return None

    def fork(self) -> NgramDrafts:
        """An index for a sequence that goes on differently; it is built anew."""
        return NgramDrafts(self._least, self._most)

    def _index(self, tokens: Sequence[int]) -> None:
        for at in range(self._indexed, len(tokens)):
            for size in range(self._least, min(self._most, at) + 1):
                # a later occurrence replaces an earlier one: recent text is the better guess
                self._continued_at[tuple(tokens[at - size : at])] = at
        self._indexed = len(tokens)
