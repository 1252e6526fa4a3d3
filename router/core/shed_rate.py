"""Share of refused asks, by tier: an objective of its own, because a router that refuses enough meets all others."""

from __future__ import annotations

WINDOW = 2_000
"""Asks over which the share is averaged, roughly."""


class ShedRates:
    """The share of refused asks, averaged over the latest ones of each tier."""

    def __init__(self) -> None:
        self.asks: dict[str, int] = {}
        self.refusals: dict[str, int] = {}
        self.over_share: dict[str, int] = {}
        """Refusals of tenants that asked for more than their share."""
        self.yielding: dict[str, int] = {}
        """Refusals of asks that yield; they are not counted elsewhere here, because they have no promise."""
        self.ratio: dict[str, float] = {}
        """Refused share of about the last `WINDOW` answers."""

    def granted(self, tier: str) -> None:
        """An ask was granted."""
        self._count(tier, 0.0)

    def shed(self, tier: str, over_share: bool = False) -> None:
        """An ask was refused for lack of room or of engines. over_share: its tenant demands more than its share."""
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
