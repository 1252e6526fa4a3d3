"""Finds stop strings in text that arrives in chunks, and holds back a possible beginning of a stop string."""

from __future__ import annotations


class StopMatcher:
    """Watches one sequence's text. The result does not depend on how the text is chunked."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Add a chunk. Returns the text that is safe to send and the stop string that was met, if any.

        The stop string that is complete first counts, and among equals the longest. No text after it is ever sent.
        """
        if not self._stops:
            return text, None
        window = self._held + text
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            start = window.find(stop)
            if start >= 0 and (best is None or (start + len(stop), start) < best[:2]):
                best = (start + len(stop), start, stop)
        if best is not None:
            self._held = ""
            return window[: best[1]], best[2]
        cut = len(window) - max(overlap(window, stop) for stop in self._stops)
        self._held = window[cut:]
        return window[:cut], None

    def flush(self) -> str:
        """Return the held-back text, which was no stop string because the sequence ended for another reason."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, whole: str) -> int:
    """Length of the longest end of `text` with which `whole` begins."""
    longest = min(len(text), len(whole) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(whole[:length])), 0)
