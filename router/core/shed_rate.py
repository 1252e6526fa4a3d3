"""Which part of the asks was refused, by tier: an objective of its own, as who refuses enough meets all others."""

from __future__ import annotations

WINDOW = 2_000
"""Asks over which the part is averaged, roughly."""


class ShedRates:
    """The share of refused asks, averaged over the last ones of each tier."""

    def __init__(self) -> None:
        self.asks: dict[str, int] = {}
        self.refusals: dict[str, int] = {}
        self.over_share: dict[str, int] = {}
        """Of the refusals, those of tenants that asked for more than their share."""
        self.yielding: dict[str, int] = {}
        """Refusals of asks that yield, which are no asks here otherwise: they were promised nothing."""
        self.ratio: dict[str, float] = {}
        """Over about the last `WINDOW` answers."""

    def granted(self, tier: str) -> None:
        """An ask was granted."""
        self._count(tier, 0.0)

    def shed(self, tier: str, over_share: bool = False) -> None:
        """An ask was refused for lack of room or of engines. over_share: its tenant asks for more than its share."""
        self.refusals[tier] = self.refusals.get(tier, 0) + 1
        self.over_share[tier] = self.over_share.get(tier, 0) + over_share
        self._count(tier, 1.0)

    def yielded(self, tier: str) -> None:
        """An ask that yields was refused."""
        self.yielding[tier] = self.yielding.get(tier, 0) + 1

    def _count(self, tier: str, value: float) -> None:
        count = self.asks[tier] = self.asks.get(tier, 0) + 1
        before = self.ratio.get(tier, 0.0)
        self.ratio[tier] = before + (value - before) / min(count, WINDOW)
