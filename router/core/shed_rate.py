"""The share of refused requests by tier, with its own objective: a router that refuses enough requests meets all
others."""

from __future__ import annotations

WINDOW = 2_000
"""Approximate number of requests over which the share is averaged."""


class ShedRates:
    """The share of refused requests, averaged over the latest requests of each tier."""

    def __init__(self) -> None:
        self.asks: dict[str, int] = {}
        self.refusals: dict[str, int] = {}
        self.over_share: dict[str, int] = {}
        """Refusals of tenants that demanded more than their share."""
        self.yielding: dict[str, int] = {}
        """Refusals of requests that yield; only this counts them, because they have no promise."""
        self.ratio: dict[str, float] = {}
        """Refused share of about the last `WINDOW` requests."""

    def granted(self, tier: str) -> None:
        """Count a granted request."""
        self._count(tier, 0.0)

    def shed(self, tier: str, over_share: bool = False) -> None:
        """Count a refusal for lack of room or engines. over_share: whether the tenant demands more than its share."""
        self.refusals[tier] = self.refusals.get(tier, 0) + 1
        self.over_share[tier] = self.over_share.get(tier, 0) + over_share
        self._count(tier, 1.0)

    def yielded(self, tier: str) -> None:
        """Count the refusal of a request that yields."""
        self.yielding[tier] = self.yielding.get(tier, 0) + 1

    def _count(self, tier: str, value: float) -> None:
        count = self.asks[tier] = self.asks.get(tier, 0) + 1
        before = self.ratio.get(tier, 0.0)
        self.ratio[tier] = before + (value - before) / min(count, WINDOW)
