"""How long to wait before starting a dead process again: doubling, capped, forgotten once it ran well."""

from __future__ import annotations


class Backoff:
    """Pure: the caller says how long the process ran and gets the seconds to wait."""

    def __init__(self, *, first_s: float, max_s: float, stable_after_s: float) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._stable_after_s = stable_after_s
        self._next_s = first_s

    def after(self, ran_s: float) -> float:
        """Seconds to wait after a run of `ran_s` seconds that ended unasked."""
        if ran_s >= self._stable_after_s:
            self._next_s = self._first_s
        delay_s = self._next_s
        self._next_s = min(self._max_s, self._next_s * 2)
        return delay_s
