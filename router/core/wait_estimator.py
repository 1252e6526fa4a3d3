"""The rate at which a pool admits waiting requests, on which a realistic Retry-After is based.

It is measured while a queue exists; before the first one, it is estimated from the duration of leases (Little's law).
"""

from __future__ import annotations

SMOOTHING = 0.05
"""Weight of the newest lease in the moving mean, in which about the last twenty leases count."""
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
        """The return time given to the latest refused client."""

    @property
    def known(self) -> bool:
        """Whether enough grants from a queue have been seen to predict a turn."""
        return self._served >= KNOWN_AFTER

    def ended(self, duration_s: float) -> None:
        """Learn from a lease of this pool that ended after `duration_s`."""
        if self.mean_s is None:
            self.mean_s = duration_s
        else:
            self.mean_s += SMOOTHING * (duration_s - self.mean_s)

    def filled(self, now: float) -> None:
        """Note that a request waits in a queue that was empty."""
        self._last_at = now

    def served(self, now: float) -> None:
        """Learn from the grant of a slot to a waiting request."""
        self._served += 1
        step = max(SMOOTHING, 1 / self._served)
        self._between_s += step * (now - self._last_at - self._between_s)
        self._last_at = now

    def return_in_s(self, wait_s: float, now: float) -> float:
        """The Retry-After of a refused client, in seconds. wait_s: the time until it would get a turn.

        Clients refused at the same time get different times, `RETURN_SPACING` turns apart: all of them together would
        find the same full queue, and new requests also need turns.
        """
        if not self.known:
            return min(wait_s, LONGEST_S)
        self._returns_at = max(self._returns_at + RETURN_SPACING * self._between_s, now + wait_s)
        return min(self._returns_at - now, LONGEST_S)

    def wait_s(self, ahead: int, places: int) -> float:
        """Time until a new request, after `ahead` others, gets one of `places` slots; 1 s while nothing is known."""
        if self.known:
            expected_s = (ahead + 1) * self._between_s
        elif self.mean_s is None or places <= 0:
            return UNKNOWN_S
        else:
            expected_s = (ahead + 1) * self.mean_s / places
        return min(max(expected_s, SHORTEST_S), LONGEST_S)
