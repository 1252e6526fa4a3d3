"""Finds stop strings in text that arrives in pieces, and holds back what may become one."""

from __future__ import annotations


class StopMatcher:
    """Watches one sequence's text. The result does not depend on how the text is cut into pieces."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Add a piece. Returns the text that is safe to send and the stop string that was met, if any.

        Of several, the one that is complete first counts, and of those the longest. Nothing after it is ever sent.
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
        held = self._risky_length(window)
        cut = len(window) - held
        self._held = window[cut:]
        return window[:cut], None

    def flush(self) -> str:
        """The text held back; the sequence ended otherwise, so it was no stop string."""
        held, self._held = self._held, ""
        return held

    def _risky_length(self, window: str) -> int:
        """Length of the longest end of `window` that begins a stop string."""
        for length in range(min(self._longest - 1, len(window)), 0, -1):
            end = window[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
