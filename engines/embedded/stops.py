"""Finds stop strings in text that arrives in chunks, and holds back a possible beginning of a stop string."""

from __future__ import annotations

import functools
from array import array


class StopMatcher:
    """Watches one sequence's text. The result does not depend on how the text is chunked.

    The time for a character does not grow with the stop strings' length, because a client chooses both them and, with
    `logit_bias`, the text, and all sequences of the engine wait for it (Knuth, Morris and Pratt 1977).
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        """stops: not empty texts."""
        self._stops = [(stop, _borders(stop)) for stop in stops]
        self._firsts = frozenset(stop[0] for stop in stops)
        self._matched = [0] * len(stops)
        """Length of the longest end of the text with which each stop string begins."""
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Add a chunk. Returns the text that is safe to send and the stop string that was met, if any.

        The stop string that is complete first counts, and among equals the longest. No text after it is ever sent.
        """
        if not self._held and self._firsts.isdisjoint(text):
            return text, None
        window, matched = self._held + text, self._matched
        for end, character in enumerate(text, len(self._held) + 1):
            met = ""
            for number, (stop, borders) in enumerate(self._stops):
                size = matched[number]
                while size and stop[size] != character:
                    size = borders[size - 1]
                matched[number] = size = size + (stop[size] == character)
                if size == len(stop) > len(met):
                    met = stop
            if met:
                self._held = ""
                return window[: end - len(met)], met
        cut = len(window) - max(matched)
        self._held = window[cut:]
        return window[:cut], None

    def flush(self) -> str:
        """Return the held-back text, which was no stop string because the sequence ended for another reason. No text
        follows."""
        held, self._held = self._held, ""
        return held


@functools.lru_cache(maxsize=256)
def _borders(stop: str) -> array[int]:
    """For each beginning of a stop string, the length of its longest end, but not all of it, with which the stop string
    begins."""
    borders, size = array("I", [0]), 0
    for character in stop[1:]:
        while size and stop[size] != character:
            size = borders[size - 1]
        size += stop[size] == character
        borders.append(size)
    return borders


def overlap(text: str, whole: str) -> int:
    """Length of the longest end of `text` with which `whole` begins."""
    longest = min(len(text), len(whole) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(whole[:length])), 0)
