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


class Flushed(Protocol):
    """Any tally."""

    def flush(self) -> None:
        """Bring its metric up to date."""
        ...


class CounterBuffer:
    """What a counter will be increased by. `add` once per event."""

    __slots__ = ("_counter", "_sum")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._sum: float = 0

    def add(self, amount: float = 1) -> None:
        """Count."""
        self._sum += amount

    def flush(self) -> None:
        """Pass on what was counted since."""
        if self._sum:
            amount, self._sum = self._sum, 0
            self._counter.inc(amount)


class GaugeBuffer:
    """A gauge's value now."""

    __slots__ = ("_gauge", "_poured", "value")

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._poured = 0.0
        self.value = 0.0

    def flush(self) -> None:
        """Pass on the value."""
        if self.value != self._poured:
            self._poured = self.value
            self._gauge.set(self.value)


class HistogramBuffer:
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

    def flush(self) -> None:
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


class MetricBuffers:
    """All tallies of a process, by metric and labels. `start` begins pouring once per period, `flush` does it now."""

    def __init__(self, period_s: float = 1.0) -> None:
        self._period_s = period_s
        self._counters: dict[tuple[Any, ...], CounterBuffer] = {}
        self._gauges: dict[tuple[Any, ...], GaugeBuffer] = {}
        self._histograms: dict[tuple[Any, ...], HistogramBuffer] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin pouring on the running loop."""
        self._timer = asyncio.get_running_loop().call_later(self._period_s, self._again)

    def stop(self) -> None:
        """Pour a last time and end."""
        if self._timer is not None:
            self._timer.cancel()
        self.flush()

    def counter(self, counter: Counter, *labels: str) -> CounterBuffer:
        """The tally of this counter with these labels."""
        tally = self._counters.get((counter, *labels))
        if tally is None:
            tally = self._counters[counter, *labels] = CounterBuffer(counter.labels(*labels) if labels else counter)
        return tally

    def gauge(self, gauge: Gauge, *labels: str) -> GaugeBuffer:
        """The tally of this gauge with these labels."""
        tally = self._gauges.get((gauge, *labels))
        if tally is None:
            tally = self._gauges[gauge, *labels] = GaugeBuffer(gauge.labels(*labels) if labels else gauge)
        return tally

    def histogram(self, histogram: Histogram, *labels: str) -> HistogramBuffer:
        """The tally of this histogram with these labels."""
        tally = self._histograms.get((histogram, *labels))
        if tally is None:
            made = HistogramBuffer(histogram.labels(*labels) if labels else histogram)
            tally = self._histograms[histogram, *labels] = made
        return tally

    def flush(self) -> None:
        """Bring prometheus_client up to date."""
        kinds: tuple[Iterable[Flushed], ...] = (
            self._counters.values(),
            self._gauges.values(),
            self._histograms.values(),
        )
        for buffers in kinds:
            for tally in buffers:
                tally.flush()

    def _again(self) -> None:
        self.flush()
        self.start()
