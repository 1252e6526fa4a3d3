"""A limiter's counters, for formats to write into their own headers."""

from __future__ import annotations

from typing import Protocol

import msgspec


class CounterState(msgspec.Struct, frozen=True):
    """One counter. reset_ms: time until the bucket is full again, which is not the delay before the next request."""

    limit: int
    remaining: int
    reset_ms: int


class RateLimitStatus(Protocol):
    """State of a caller's counters (`gateway.limits.rate_state.RateState`)."""

    @property
    def now_ms(self) -> int:
        """The limiter's clock, Unix time, for formats that send the time of a reset."""
        ...

    def counter(self, name: str) -> CounterState | None:
        """The counter of a limit per minute, such as `requests_per_minute`; None if it has no limit."""
        ...


def go_duration(ms: int) -> str:
    """Milliseconds as Go prints durations: `12ms`, `1s`, `1.5s`, `6m0s`, `1h0m0.25s`; zero is `0s`."""
    if 0 < ms < 1_000:
        return f"{ms}ms"
    seconds, ms = divmod(ms, 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{seconds}.{ms:03d}".rstrip("0") + "s" if ms else f"{seconds}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
