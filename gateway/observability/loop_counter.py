"""Prometheus counters and gauges that only the event loop's thread changes, and therefore without a lock.

A request counts a dozen things. `prometheus_client` makes four calls and takes a lock for each: 2 us against 0.3 here.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter, Gauge


class LoopCounter(Counter):
    """One counter, or one of a counter's labels."""

    _value: Any

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        """Add an amount, which is not negative."""
        self._value._value += amount


class LoopGauge(Gauge):
    """One gauge, or one of a gauge's labels."""

    _value: Any

    def inc(self, amount: float = 1) -> None:
        self._value._value += amount

    def dec(self, amount: float = 1) -> None:
        """Take an amount off."""
        self._value._value -= amount
