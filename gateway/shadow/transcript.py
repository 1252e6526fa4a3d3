"""An engine's raw output for one request, kept until it is compared."""

from __future__ import annotations

from collections.abc import Callable

MAX_BYTES = 1024 * 1024
"""Limit of an engine's events: some thousands of tokens. Longer responses are not compared."""


class Transcript:
    """An engine's bytes in order of arrival, as a list of chunks: the customer's path only appends."""

    __slots__ = ("_full", "_size", "pieces", "whole")

    def __init__(self, full: Callable[[], None] | None = None) -> None:
        """full: called once at the limit, to stop an engine that runs only for the copy."""
        self._full = full
        self._size = 0
        self.pieces: list[bytes] = []
        self.whole = True
        """Whether no part is missing."""

    def feed(self, data: bytes) -> None:
        """Keep the bytes, unless they are too many."""
        if not self.whole:
            return
        self._size += len(data)
        if self._size > MAX_BYTES:
            self.whole = False
            self.pieces.clear()
            if self._full is not None:
                self._full()
            return
        self.pieces.append(data)
