"""Prometheus counters and gauges without a lock, because only the event loop's thread changes them.

A request changes a dozen counters. `prometheus_client` makes four calls and takes a lock for each: 2 us instead of 0.3.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter, Gauge


class LoopCounter(Counter):
    """One counter, or one of a counter's labels."""

    _value: Any

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        """Add an amount that is not negative."""
        self._value._value += amount


class LoopGauge(Gauge):
    """One gauge, or one of a gauge's labels."""

    _value: Any

    def inc(self, amount: float = 1) -> None:
        self._value._value += amount

    def dec(self, amount: float = 1) -> None:
        """Subtract an amount."""
        self._value._value -= amount
