"""What an engine wrote for one request, kept as it came until it is compared."""

from __future__ import annotations

from collections.abc import Callable

MOST_BYTES = 1024 * 1024
"""Of an engine's events: some thousands of tokens. What is longer is not compared."""


class Transcript:
    """An engine's bytes as they were read. Kept in pieces: whoever serves a customer only hangs one on."""

    __slots__ = ("_full", "_size", "pieces", "whole")

    def __init__(self, full: Callable[[], None] | None = None) -> None:
        """full: called once when more comes than is kept, to stop an engine for which nobody waits."""
        self._full = full
        self._size = 0
        self.pieces: list[bytes] = []
        self.whole = True
        """Nothing is missing."""

    def feed(self, data: bytes) -> None:
        """Keep what came, unless it is too much."""
        if not self.whole:
            return
        self._size += len(data)
        if self._size > MOST_BYTES:
            self.whole = False
            self.pieces.clear()
            if self._full is not None:
                self._full()
            return
        self.pieces.append(data)
