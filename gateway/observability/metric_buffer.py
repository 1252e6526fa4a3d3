"""Counts per request in plain memory and pours the sums into prometheus_client once in a while.

prometheus_client's values for several processes cost 2 to 5 µs of lock, lookup and mapped file per sample, and a
request has some twenty of them. A scrape of this instance pours first; another instance's is at most a period behind.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Protocol

from prometheus_client import Counter, Gauge, Histogram


class Poured(Protocol):
    """Any tally."""

    def pour(self) -> None:
        """Bring its metric up to date."""
        ...


class CounterTally:
    """What a counter will be increased by. `add` once per event."""

    __slots__ = ("_counter", "_sum")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._sum: float = 0

    def add(self, amount: float = 1) -> None:
        """Count."""
        self._sum += amount

    def pour(self) -> None:
        """Pass on what was counted since."""
        if self._sum:
            amount, self._sum = self._sum, 0
            self._counter.inc(amount)


class GaugeTally:
    """A gauge's value now."""

    __slots__ = ("_gauge", "_poured", "value")

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._poured = 0.0
        self.value = 0.0

    def pour(self) -> None:
        """Pass on the value."""
        if self.value != self._poured:
            self._poured = self.value
            self._gauge.set(self.value)


class HistogramTally:
    """What a histogram will be increased by."""

    __slots__ = ("_bounds", "_counts", "_histogram", "_sum")

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._bounds: list[float] = histogram._upper_bounds
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def pour(self) -> None:
        """Pass on what was counted since. prometheus_client takes one value at a time, so its buckets are increased
        here as its own `observe` does; a test compares the two."""
        counts, total = self._counts, self._sum
        if not any(counts):
            return
        self._counts, self._sum = [0] * len(counts), 0.0
        self._histogram._sum.inc(total)
        for bucket, count in zip(self._histogram._buckets, counts, strict=True):
            if count:
                bucket.inc(count)


class Tallies:
    """All tallies of a process, by metric and labels. `start` begins pouring once per period, `pour` does it now."""

    def __init__(self, period_s: float = 1.0) -> None:
        self._period_s = period_s
        self._counters: dict[tuple[Any, ...], CounterTally] = {}
        self._gauges: dict[tuple[Any, ...], GaugeTally] = {}
        self._histograms: dict[tuple[Any, ...], HistogramTally] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin pouring on the running loop."""
        self._timer = asyncio.get_running_loop().call_later(self._period_s, self._again)

    def stop(self) -> None:
        """Pour a last time and end."""
        if self._timer is not None:
            self._timer.cancel()
        self.pour()

    def counter(self, counter: Counter, *labels: str) -> CounterTally:
        """The tally of this counter with these labels."""
        tally = self._counters.get((counter, *labels))
        if tally is None:
            tally = self._counters[counter, *labels] = CounterTally(counter.labels(*labels) if labels else counter)
        return tally

    def gauge(self, gauge: Gauge, *labels: str) -> GaugeTally:
        """The tally of this gauge with these labels."""
        tally = self._gauges.get((gauge, *labels))
        if tally is None:
            tally = self._gauges[gauge, *labels] = GaugeTally(gauge.labels(*labels) if labels else gauge)
        return tally

    def histogram(self, histogram: Histogram, *labels: str) -> HistogramTally:
        """The tally of this histogram with these labels."""
        tally = self._histograms.get((histogram, *labels))
        if tally is None:
            made = HistogramTally(histogram.labels(*labels) if labels else histogram)
            tally = self._histograms[histogram, *labels] = made
        return tally

    def pour(self) -> None:
        """Bring prometheus_client up to date."""
        kinds: tuple[Iterable[Poured], ...] = (
            self._counters.values(),
            self._gauges.values(),
            self._histograms.values(),
        )
        for tallies in kinds:
            for tally in tallies:
                tally.pour()

    def _again(self) -> None:
        self.pour()
        self.start()
