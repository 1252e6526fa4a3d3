"""How fast a pool takes in those who wait: the ground of an honest Retry-After.

Measured while a queue exists; before any has been seen, guessed from how long leases last (Little's law).
"""

from __future__ import annotations

SMOOTHING = 0.05
"""Share of the newest lease in the moving mean: about the last twenty leases count."""
KNOWN_AFTER = 16
SHORTEST_S = 0.1
LONGEST_S = 60.0
UNKNOWN_S = 1.0
RETURN_SPACING = 2.0


class WaitEstimator:
    """Moving means of lease durations, and of the time between two grants out of the queue."""

    def __init__(self) -> None:
        self.mean_s: float | None = None
        self._between_s = 0.0
        self._served = 0
        self._last_at = 0.0
        self._returns_at = 0.0
        """When the client refused last was told to come back."""

    @property
    def known(self) -> bool:
        """Enough grants out of a queue have been seen to say when a turn comes."""
        return self._served >= KNOWN_AFTER

    def ended(self, duration_s: float) -> None:
        """A lease of this pool ended after `duration_s`."""
        if self.mean_s is None:
            self.mean_s = duration_s
        else:
            self.mean_s += SMOOTHING * (duration_s - self.mean_s)

    def filled(self, now: float) -> None:
        """Somebody waits where nobody did."""
        self._last_at = now

    def served(self, now: float) -> None:
        """One of those who waited was granted a place."""
        self._served += 1
        step = max(SMOOTHING, 1 / self._served)
        self._between_s += step * (now - self._last_at - self._between_s)
        self._last_at = now

    def return_in_s(self, ahead: int, places: int, now: float) -> float:
        """What to tell somebody who is refused.

        Those refused in one moment are told different times, `RETURN_SPACING` turns apart: all of them at once would
        find the same full queue, and newcomers need turns too.
        """
        wait_s = self.wait_s(ahead, places)
        if not self.known:
            return wait_s
        self._returns_at = max(self._returns_at + RETURN_SPACING * self._between_s, now + wait_s)
        return min(self._returns_at - now, LONGEST_S)

    def wait_s(self, ahead: int, places: int) -> float:
        """Until a newcomer behind `ahead` others gets one of `places`; 1 s while nothing is known."""
        if self.known:
            expected_s = (ahead + 1) * self._between_s
        elif self.mean_s is None or places <= 0:
            return UNKNOWN_S
        else:
            expected_s = (ahead + 1) * self.mean_s / places
        return min(max(expected_s, SHORTEST_S), LONGEST_S)
