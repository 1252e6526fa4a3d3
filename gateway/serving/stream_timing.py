"""Measures one attempt's tokens: their duration, their longest gap, and whether the engine or the client caused a wait.

The module is pure: callers pass each event's time, in seconds of one monotonic clock. An *arrival* is a read from the
engine's socket that brought at least one whole event, from the first text to the event that ends the answer; tokens
that arrive together are one arrival. Arrivals also count while the client is slow, so that the engine does not look
slow. If so much is unread that the engine itself is held up, the time until the client reads is no gap.
"""

from __future__ import annotations

from bisect import bisect_left

from gateway.observability.latency_metrics import TOKEN_BUCKETS_S

GAP_S = 0.1
"""Longer gaps are counted, because a reader sees the text stop."""


class StreamTiming:
    """Timing of one attempt: `first_text`, then `arrived` for each further arrival; `stalled` and `resumed` between."""

    __slots__ = (
        "_first_s",
        "_held_s",
        "_last_s",
        "_stalled_s",
        "arrivals",
        "gap_counts",
        "gaps_over_100ms",
        "longest_gap_s",
        "stall_s",
    )

    def __init__(self) -> None:
        self._first_s = 0.0
        self._last_s = 0.0
        self._held_s = 0.0
        self._stalled_s = 0.0
        self.arrivals = 0
        self.longest_gap_s = 0.0
        """Longest gap between two arrivals; 0 before the second."""
        self.gaps_over_100ms = 0
        self.gap_counts: list[int] = []
        """Counts of gaps, by the buckets of `slipstream_inter_token_seconds`; their sum is `decode_s`."""
        self.stall_s = 0.0
        """Total time during which the client's connection accepted no more bytes."""

    def first_text(self, now_s: float) -> None:
        """Record the arrival of the engine's first text."""
        self._first_s = self._last_s = now_s
        self.arrivals = 1
        self.gap_counts = [0] * (len(TOKEN_BUCKETS_S) + 1)

    def arrived(self, now_s: float) -> None:
        """Record another arrival. It has no effect before the first text."""
        if not self.arrivals:
            return
        self.arrivals += 1
        gap_s = now_s - self._last_s
        self._last_s = now_s
        self.gap_counts[bisect_left(TOKEN_BUCKETS_S, gap_s)] += 1
        if gap_s > self.longest_gap_s:
            self.longest_gap_s = gap_s
        if gap_s > GAP_S:
            self.gaps_over_100ms += 1

    def stalled(self, now_s: float) -> None:
        """Record that the client accepts no more bytes."""
        self._stalled_s = now_s

    def resumed(self, now_s: float, *, engine_held: bool) -> None:
        """Record that the client reads again, or is given up. engine_held: whether the engine was no longer read."""
        self.stall_s += now_s - self._stalled_s
        if engine_held and self.arrivals:
            self._held_s += now_s - self._last_s
            self._last_s = now_s

    @property
    def decode_s(self) -> float:
        """Time from the first text to the last arrival, without the time during which the engine was held up."""
        return self._last_s - self._first_s - self._held_s

    def per_token_s(self, completion_tokens: int) -> float | None:
        """Mean time of a token after the first; None for fewer than two, or if all of them arrived at once."""
        if completion_tokens < 2 or self.arrivals < 2:
            return None
        return self.decode_s / (completion_tokens - 1)
