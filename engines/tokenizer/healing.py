"""Token healing: a prompt that ends within a word is cut before it, and the output must begin with the cut text.

A tokenizer splits a half-typed word into other tokens than the whole word (`offset` is one token, `offse` two), and a
model that never saw those tokens at the end of a text continues badly from them. So the prompt is cut where the
vocabulary's own pattern begins its last piece, which is a boundary in any text. The model then generates the tokens
that spell the cut text, together with their continuation, and the cut text is not delivered again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

LOOKED_BACK = 256
"""Most characters before the cursor to which the pattern is applied."""
LONGEST_PIECE = 64
"""Longer pieces are not words and stay in the prompt."""


def healed(prefix: str, pre_tokenizer: Any) -> int:
    """Start of the part of a prefix that must be generated again; the prefix's length if there is none.

    That part is never more than the cursor's line: a piece that begins with the end of the line above, as an
    indentation does in some vocabularies, stays. pre_tokenizer: a pre-tokenizer of the `tokenizers` library.
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
    """Whether each byte that occurs in UTF-8 has a token."""
    single = {text[0] for text in tokens if len(text) == 1}
    return single >= {*range(0xC0), *range(0xC2, 0xF5)}


class TokenIndex:
    """The ids of a byte-level vocabulary by their bytes."""

    def __init__(self, token_bytes: Mapping[int, bytes], without: Collection[int]) -> None:
        """without: ids that no text may become, such as control tokens."""
        entries = sorted((text, id_) for id_, text in token_bytes.items() if text and id_ not in without)
        self._texts = [text for text, _ in entries]
        # half of a large vocabulary may begin with one character, and slicing an array is 20 times as fast
        self._ids = array("q", [id_ for _, id_ in entries])
        self._bytes = {id_: text for text, id_ in entries}

    def toward(self, text: bytes) -> array[int]:
        """The ids that spell a beginning of `text`, all of it, or more. text: must not be empty."""
        shorter = [id_ for size in range(1, len(text)) for id_ in self._between(text[:size], text[:size] + b"\0")]
        return array("q", shorter) + self._between(text, _after(text))

    def bytes_of(self, id_: int) -> bytes:
        """The bytes of an id; empty for ids that are not in the index."""
        return self._bytes.get(id_, b"")

    def _between(self, low: bytes, high: bytes) -> array[int]:
        return self._ids[bisect_left(self._texts, low) : bisect_left(self._texts, high)]


def _after(text: bytes) -> bytes:
    """The first text after all texts that begin with `text`. UTF-8 has no byte 0xFF, so the last byte can be raised."""
    return text[:-1] + bytes([text[-1] + 1])


class TokenBeginnings:
    """The texts with which longer tokens of a byte-level vocabulary begin."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        """texts: the bytes of all tokens that a text may become."""
        # a single sort of a large vocabulary would hold the interpreter lock for a second
        by_head: dict[bytes, list[bytes]] = {}
        for text in texts:
            if len(text) > 1:
                by_head.setdefault(text[:2], []).append(text)
        self._by_head = {head: sorted(tokens) for head, tokens in by_head.items()}
        self._firsts = frozenset(head[:1] for head in by_head)

    def longest_end(self, tokens: Sequence[bytes]) -> bytes:
        """The longest end of these tokens with which a longer token begins; empty if there is none. The end starts at
        the start of a token and of a character."""
        for number in range(len(tokens)):
            end = b"".join(tokens[number:])
            if end[0] & 0xC0 != 0x80 and self._has(end):
                return end
        return b""

    def _has(self, text: bytes) -> bool:
        if len(text) == 1:
            return text in self._firsts
        tokens = self._by_head.get(text[:2], [])
        index = bisect_right(tokens, text)
        return index < len(tokens) and tokens[index].startswith(text)


class Opening:
    """A text that an output must begin with, for any number of sequences."""

    def __init__(self, text: str, index: TokenIndex) -> None:
        """text: must not be empty. index: must spell any text."""
        self.text = text
        self._index = index

    def start(self) -> OpeningState:
        """The state of a new sequence."""
        return OpeningState(self.text.encode(), self._index)


class OpeningState:
    """The part of the text that one sequence has yet to write. Like the sequence's tokens, it survives a preemption."""

    def __init__(self, left: bytes, index: TokenIndex) -> None:
        self._left = left
        self._index = index

    @property
    def finished(self) -> bool:
        """Whether the sequence has written the whole text."""
        return not self._left

    def allowed(self) -> array[int]:
        """The ids that may come next; never empty."""
        return self._index.toward(self._left)

    def advance(self, id_: int) -> bool:
        """Process one of the allowed tokens. Returns whether its text goes beyond the opening."""
        written = self._index.bytes_of(id_)
        beyond = len(written) > len(self._left)
        self._left = self._left[len(written) :]
        return beyond
