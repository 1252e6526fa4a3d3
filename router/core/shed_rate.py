"""Which part of the asks was refused, by tier: an objective of its own, as who refuses enough meets all others."""

from __future__ import annotations

WINDOW = 2_000
"""Asks over which the part is averaged, roughly."""


class ShedRates:
    """The share of refused asks, averaged over the last ones of each tier."""

    def __init__(self) -> None:
        self.asks: dict[str, int] = {}
        self.refusals: dict[str, int] = {}
        self.ratio: dict[str, float] = {}
        """Over about the last `WINDOW` answers."""

    def granted(self, tier: str) -> None:
        """An ask was granted."""
        self._count(tier, 0.0)

    def shed(self, tier: str) -> None:
        """An ask was refused for lack of room or of engines."""
        self.refusals[tier] = self.refusals.get(tier, 0) + 1
        self._count(tier, 1.0)

    def _count(self, tier: str, value: float) -> None:
        count = self.asks[tier] = self.asks.get(tier, 0) + 1
        before = self.ratio.get(tier, 0.0)
        self.ratio[tier] = before + (value - before) / min(count, WINDOW)
