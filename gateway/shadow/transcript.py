"""What an engine wrote for one request, kept as it came until it is compared."""

from __future__ import annotations

from contracts.errors import EngineFailed

MOST_BYTES = 1024 * 1024
"""Of an engine's events: some thousands of tokens. What is longer is not compared."""


class Transcript:
    """An engine's bytes as they were read. Kept in pieces: whoever serves a customer only hangs one on."""

    __slots__ = ("_size", "_strict", "pieces", "whole")

    def __init__(self, *, strict: bool = False) -> None:
        """strict: whoever writes more than is kept is stopped, as nobody waits for it."""
        self._strict = strict
        self._size = 0
        self.pieces: list[bytes] = []
        self.whole = True
        """Nothing is missing."""

    def feed(self, data: bytes) -> None:
        """Keep what came. Raises EngineFailed when it is too much and the transcript is strict, else nothing."""
        if not self.whole:
            return
        self._size += len(data)
        if self._size > MOST_BYTES:
            self.whole = False
            self.pieces.clear()
            if self._strict:
                raise EngineFailed("The engine wrote more than is compared.")
            return
        self.pieces.append(data)
