"""The worker's metrics of objectives, for alerts. They are as old as the last roll-up, which reports its own age."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from datetime import datetime

from prometheus_client import CollectorRegistry, Gauge

from control.slo.budget import PAIRS
from control.slo.standing import Standing

OF = ("tier", "length")


class SloMetrics:
    """The gauges of one worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = functools.partial(Gauge, registry=registry)
        self._target = gauge(
            "slipstream_slo_target", "Share of requests that should be good, by tier and length class.", OF
        )
        self._attainment = gauge(
            "slipstream_slo_attainment",
            "Share of the counted requests of the last 28 days that were good, by tier and length class; NaN without "
            "requests.",
            OF,
        )
        self._budget_left = gauge(
            "slipstream_slo_budget_left",
            "Share of the error budget of the last 28 days that is left, by tier and length class. 1 is untouched, 0 "
            "is spent, and a negative value is overspent; NaN without requests.",
            OF,
        )
        self._over_share = gauge(
            "slipstream_slo_over_share_requests",
            "Requests of the last 28 days that were refused for lack of room while their organization requested more "
            "than its share, by tier and length class. Attainment, budget and burn rates do not count them.",
            OF,
        )
        self._burn_rate = gauge(
            "slipstream_slo_burn_rate",
            "Rate at which the error budget is used, by tier, length class and window (5m, 30m, 1h, 2h, 6h, 1d, 3d, "
            "28d). A rate of 1 spends the budget in exactly 28 days; 0 without requests.",
            (*OF, "window"),
        )
        self._burning = gauge(
            "slipstream_slo_burning",
            "1 while at least 10 bad requests use the error budget of a tier and length class faster than allowed, "
            "both over this window (1h, 6h, 1d, 3d) and over its short window (5m, 30m, 2h, 6h); otherwise 0.",
            (*OF, "window"),
        )
        self._rolled_up = gauge(
            "slipstream_slo_rolled_up_timestamp_seconds",
            "Time at which this worker last measured the attainment of objectives, in seconds since 1970.",
        )
        self._shown: set[tuple[str, str]] = set()

    def tell(self, standings: Iterable[Standing], at: datetime) -> None:
        """Show only these from now on. at: when they were added up."""
        found = {(each.objective.tier.value, each.objective.length.value): each for each in standings}
        for removed in self._shown - found.keys():
            for gauge in (self._target, self._attainment, self._budget_left, self._over_share):
                gauge.remove(*removed)
            for gauge in (self._burn_rate, self._burning):
                gauge.remove_by_labels(dict(zip(OF, removed, strict=True)))
        self._shown = set(found)
        for labels, each in found.items():
            self._target.labels(*labels).set(each.objective.target)
            self._attainment.labels(*labels).set(_number(each.budget.attainment))
            self._budget_left.labels(*labels).set(_number(each.budget_left))
            self._over_share.labels(*labels).set(each.budget.over_share)
            for window, rate in each.rates.items():
                self._burn_rate.labels(*labels, window).set(rate or 0.0)
            burning = each.burning
            for pair in PAIRS:
                self._burning.labels(*labels, pair.long).set(pair in burning)
        self._rolled_up.set(at.timestamp())


def _number(value: float | None) -> float:
    return math.nan if value is None else value
