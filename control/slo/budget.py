"""Error budgets and burn rates, from two counts: how many requests counted, and how many of them were good.

Source: Google, The Site Reliability Workbook, chapter 5, "Alerting on SLOs": two windows for each threshold. Its
recommended parameters are three pairs, 1h/5m, 6h/30m and 3d/6h; 1d/2h with a threshold of 3 is from its examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

BUDGET_WINDOW = timedelta(days=28)
"""Four whole weeks, so that each window has as many weekends."""


class BurnPair(msgspec.Struct, frozen=True):
    """An alert fires while both windows burn faster than the threshold: the long one shows that it matters, the short
    one that it continues."""

    long: str
    short: str
    threshold: float


WINDOWS = {
    "5m": timedelta(minutes=5),
    "30m": timedelta(minutes=30),
    "1h": timedelta(hours=1),
    "2h": timedelta(hours=2),
    "6h": timedelta(hours=6),
    "1d": timedelta(days=1),
    "3d": timedelta(days=3),
    "28d": BUDGET_WINDOW,
}
"""Windows by name, the shortest first; the last is the budget's own."""
PAIRS = (
    BurnPair("1h", "5m", 14.4),
    BurnPair("6h", "30m", 6.0),
    BurnPair("1d", "2h", 3.0),
    BurnPair("3d", "6h", 1.0),
)
"""The fastest first."""
MIN_BAD = 10
"""Fewer bad requests in the long window are no pattern: in little traffic, a single one would burn the budget fast."""


class Count(msgspec.Struct, frozen=True):
    """Requests of one tier and length in one window."""

    counted: int
    good: int
    over_share: int = 0
    """Requests refused for lack of room while their organization exceeded its share. They are among the counted ones of
    an organization, but not of the deployment."""

    @property
    def attainment(self) -> float | None:
        """Good part of the counted requests; None without any."""
        return self.good / self.counted if self.counted else None


def burn_rate(count: Count, target: float) -> float | None:
    """How fast the budget is used: 1 spends exactly all of it over the budget's window. None without requests."""
    if not count.counted:
        return None
    return (count.counted - count.good) / count.counted / (1 - target)


def budget_left(count: Count, target: float) -> float | None:
    """Part of the window's budget that is left, by its actual requests: 1 untouched, 0 spent, below 0 overspent. None
    without requests."""
    rate = burn_rate(count, target)
    return None if rate is None else 1 - rate


def burning(pair: BurnPair, windows: Mapping[str, Count], target: float) -> bool:
    """Whether both windows burn faster than the threshold, by at least `MIN_BAD` requests. windows: by name."""
    return _too_fast(pair, windows, target) and _bad(windows[pair.long]) >= MIN_BAD


def too_few(pair: BurnPair, windows: Mapping[str, Count], target: float) -> bool:
    """Whether both windows burn faster than the threshold, by fewer than `MIN_BAD` requests, so that no alert fires."""
    return _too_fast(pair, windows, target) and _bad(windows[pair.long]) < MIN_BAD


def _too_fast(pair: BurnPair, windows: Mapping[str, Count], target: float) -> bool:
    rates = (burn_rate(windows[name], target) for name in (pair.long, pair.short))
    return all(rate is not None and rate > pair.threshold for rate in rates)


def _bad(count: Count) -> int:
    return count.counted - count.good
