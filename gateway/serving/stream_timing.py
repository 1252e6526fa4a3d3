"""Timing of one attempt's tokens: their duration, their longest gap, and whether the engine or the client caused a
wait.

Pure: callers pass each event's time, in seconds of one monotonic clock. An *arrival* is a read from the engine's socket
that brought at least one whole event, from the first text to the event that ends the answer; tokens that arrive
together are one arrival. Arrivals are noted while the client is waited for as well, so that a slow client does not make
a slow engine of it. Only when so much lies unread that the engine itself is held up, the time until the client reads
again counts as no gap.
"""

from __future__ import annotations

from bisect import bisect_left

from gateway.observability.latency_metrics import TOKEN_BUCKETS_S

GAP_S = 0.1
"""Gaps longer than this are counted: a reader sees the text stop."""


class StreamTiming:
    """Timing of one attempt. `first_text`, then `arrived` for each further arrival, with `stalled` and `resumed`
    between."""

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
        """Between two arrivals; 0 before there are two."""
        self.gaps_over_100ms = 0
        self.gap_counts: list[int] = []
        """Counts of gaps, by the buckets of `slipstream_inter_token_seconds`; their sum is `decode_s`."""
        self.stall_s = 0.0
        """Total time for which the client's connection accepted no more."""

    def first_text(self, now_s: float) -> None:
        """The engine's first text has arrived."""
        self._first_s = self._last_s = now_s
        self.arrivals = 1
        self.gap_counts = [0] * (len(TOKEN_BUCKETS_S) + 1)

    def arrived(self, now_s: float) -> None:
        """Another arrival. Nothing before the first text."""
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
        """The client takes no more."""
        self._stalled_s = now_s

    def resumed(self, now_s: float, *, engine_held: bool) -> None:
        """The client reads again, or is given up. engine_held: the engine was no longer read from."""
        self.stall_s += now_s - self._stalled_s
        if engine_held and self.arrivals:
            self._held_s += now_s - self._last_s
            self._last_s = now_s

    @property
    def decode_s(self) -> float:
        """From the first text to the last arrival, without the time for which the engine was held up."""
        return self._last_s - self._first_s - self._held_s

    def per_token_s(self, completion_tokens: int) -> float | None:
        """Mean time of a token after the first one. None with fewer than two, or if all of them arrived at once."""
        if completion_tokens < 2 or self.arrivals < 2:
            return None
        return self.decode_s / (completion_tokens - 1)
