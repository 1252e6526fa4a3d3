"""Token healing: a prompt that ends within a word is cut before it, and the output must begin with the cut text.

A tokenizer splits a half-typed word into other tokens than the whole one (`offset` is one token, `offse` two), and a
model that never saw those tokens at the end of a text continues badly from them. So the text is cut where the
vocabulary's own pattern begins its last piece, which is a boundary in any text; the tokens that spell the cut text are
then generated, together with their continuation, and their text is not delivered again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

LOOKED_BACK = 256
"""Characters before the cursor that the pattern is tried on."""
LONGEST_PIECE = 64
"""Longer pieces are no words: they stay unchanged."""


def healed(prefix: str, pre_tokenizer: Any) -> int:
    """Start of the part of a prefix that is to be generated again; the prefix's end: there is none.

    Never more than the cursor's line; a piece that begins with the end of the line above, as an indentation does in
    some vocabularies, stays. pre_tokenizer: of the `tokenizers` library.
    """
    line = prefix.rfind("\n") + 1
    start = max(line - 1, len(prefix) - LOOKED_BACK, 0)
    pieces = pre_tokenizer.pre_tokenize_str(prefix[start:])
    if not pieces:
        return len(prefix)
    _, (begin, _) = pieces[-1]
    cut = start + int(begin)
    return cut if cut >= line and len(prefix) - cut <= LONGEST_PIECE else len(prefix)


def spells_any_text(tokens: Iterable[bytes]) -> bool:
    """Whether there is a token for each byte in UTF-8."""
    single = {text[0] for text in tokens if len(text) == 1}
    return single >= {*range(0xC0), *range(0xC2, 0xF5)}


class TokenIndex:
    """The ids of a byte-level vocabulary by their bytes."""

    def __init__(self, token_bytes: Mapping[int, bytes], without: Collection[int]) -> None:
        """without: ids that no text may become, control tokens."""
        found = sorted((text, id_) for id_, text in token_bytes.items() if text and id_ not in without)
        self._texts = [text for text, _ in found]
        # half of a large vocabulary may begin with one character: a slice of an array is made 20 times as fast
        self._ids = array("q", [id_ for _, id_ in found])
        self._bytes = {id_: text for text, id_ in found}

    def toward(self, text: bytes) -> array[int]:
        """The ids that spell a beginning of `text`, all of it, or more. text: not empty."""
        shorter = [id_ for size in range(1, len(text)) for id_ in self._between(text[:size], text[:size] + b"\0")]
        return array("q", shorter) + self._between(text, _after(text))

    def bytes_of(self, id_: int) -> bytes:
        """Empty for ids that are not in the index."""
        return self._bytes.get(id_, b"")

    def _between(self, low: bytes, high: bytes) -> array[int]:
        return self._ids[bisect_left(self._texts, low) : bisect_left(self._texts, high)]


def _after(text: bytes) -> bytes:
    """The first text after all that begin with this one. UTF-8 has no byte 0xFF, so the last one can be raised."""
    return text[:-1] + bytes([text[-1] + 1])


class TokenBeginnings:
    """The texts that longer tokens of a byte-level vocabulary begin with."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        """texts: of all tokens that a text may become."""
        # one sort of a large vocabulary would hold the interpreter for a second
        by_head: dict[bytes, list[bytes]] = {}
        for text in texts:
            if len(text) > 1:
                by_head.setdefault(text[:2], []).append(text)
        self._by_head = {head: sorted(found) for head, found in by_head.items()}
        self._firsts = frozenset(head[:1] for head in by_head)

    def longest_end(self, tokens: Sequence[bytes]) -> bytes:
        """The longest end of these tokens, from a token's and a character's start on, that a longer token begins with;
        empty: none is."""
        for number in range(len(tokens)):
            end = b"".join(tokens[number:])
            if end[0] & 0xC0 != 0x80 and self._has(end):
                return end
        return b""

    def _has(self, text: bytes) -> bool:
        if len(text) == 1:
            return text in self._firsts
        found = self._by_head.get(text[:2], [])
        place = bisect_right(found, text)
        return place < len(found) and found[place].startswith(text)


class Opening:
    """A text that an output must begin with, for any number of sequences."""

    def __init__(self, text: str, index: TokenIndex) -> None:
        """text: not empty. index: complete."""
        self.text = text
        self._index = index

    def start(self) -> OpeningState:
        """A new sequence's state in it."""
        return OpeningState(self.text.encode(), self._index)


class OpeningState:
    """The part of the text that one sequence has yet to write. Like its tokens it outlives a preemption."""

    def __init__(self, left: bytes, index: TokenIndex) -> None:
        self._left = left
        self._index = index

    @property
    def finished(self) -> bool:
        """All of it is written."""
        return not self._left

    def allowed(self) -> array[int]:
        """The ids that may come next; never none."""
        return self._index.toward(self._left)

    def advance(self, id_: int) -> bool:
        """Process one of the allowed tokens. Returns whether its text goes beyond the opening."""
        written = self._index.bytes_of(id_)
        beyond = len(written) > len(self._left)
        self._left = self._left[len(written) :]
        return beyond
