"""Converts generated ids to text as they arrive, without splitting a character."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

MAX_HELD_IDS = 8
"""A character needs at most four byte tokens, so a longer run that does not decode never will."""
LOOKED_BACK = 16
"""Most ids of a prompt that are decoded to find its last text. All streams of an engine wait for it, and the time grows
with the square: half characters in 64 ids took 3 ms a choice."""


class TextStream(Protocol):
    """Decodes one choice. Control tokens produce no text."""

    def follow(self, ids: Sequence[int]) -> None:
        """Continue the text of these ids, so that a space at the beginning of the new text is kept. Call it first."""
        ...

    def step(self, id_: int) -> str:
        """The text that this id completes: often one token's text, sometimes none."""
        ...

    def flush(self) -> str:
        """End the stream and return the text that is still held back, without an unfinished character: a client that
        appends the response to its next prompt would send U+FFFD, which the model never wrote."""
        ...


class BytesTextStream:
    """The stream for byte-level vocabularies. Every id is a fixed run of bytes, so the work per token is constant."""

    def __init__(self, token_bytes: Mapping[int, bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def follow(self, ids: Sequence[int]) -> None:
        """Have no effect: the bytes of an id do not depend on its neighbours."""

    def step(self, id_: int) -> str:
        return self._decoder.decode(self._token_bytes.get(id_, b""))

    def flush(self) -> str:
        self._decoder.reset()
        return ""


class WindowTextStream:
    """The stream for all other vocabularies, which decodes a short window twice and emits the difference.

    The window starts at the last id that ended on a whole character and includes the ids before it, because a token's
    text may depend on its left neighbour (SentencePiece drops a leading space).
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._context: list[int] = []
        self._held: list[int] = []

    def follow(self, ids: Sequence[int]) -> None:
        # the shortest end with text suffices; half of a character in it would change the text after it
        for size in range(1, min(len(ids), LOOKED_BACK) + 1):
            text = self._decode(ids[-size:])
            if text and "\ufffd" not in text:
                self._context = list(ids[-size:])
                return

    def step(self, id_: int) -> str:
        self._held.append(id_)
        text = self._new_text()
        if text.endswith("\ufffd") and len(self._held) < MAX_HELD_IDS:
            return ""
        if text:
            # ids without text stay held: dropping them from the window would lose the real left neighbour
            self._context, self._held = self._held, []
        return text

    def flush(self) -> str:
        text = self._new_text() if self._held else ""
        self._held = []
        return text.rstrip("\ufffd")

    def _new_text(self) -> str:
        before = self._decode(self._context)
        return self._decode(self._context + self._held)[len(before) :]
