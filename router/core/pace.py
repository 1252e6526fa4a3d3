"""How fast a pool frees places, learnt from leases that ended: the ground of an honest Retry-After."""

from __future__ import annotations

SMOOTHING = 0.05
"""Share of the newest lease in the moving mean: about the last twenty leases count."""
SHORTEST_S = 0.1
LONGEST_S = 60.0
UNKNOWN_S = 1.0


class Pace:
    """Moving mean of lease durations."""

    def __init__(self) -> None:
        self.mean_s: float | None = None

    def ended(self, duration_s: float) -> None:
        """A lease of this pool ended after `duration_s`."""
        if self.mean_s is None:
            self.mean_s = duration_s
        else:
            self.mean_s += SMOOTHING * (duration_s - self.mean_s)

    def wait_s(self, queued: int, places: int) -> float:
        """Until a newcomer behind `queued` others gets one of `places`, by Little's law; 1 s while nothing is known."""
        if self.mean_s is None or places <= 0:
            return UNKNOWN_S
        return min(max((queued + 1) * self.mean_s / places, SHORTEST_S), LONGEST_S)
