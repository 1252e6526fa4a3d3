"""What is left of a key's rate limits after one decision, as OpenAI's clients read it, and the refusal itself."""

from __future__ import annotations

import msgspec

from contracts.errors import RateLimited, RequestTooExpensive
from gateway.limits.bucket import Bucket, Counter, Kind

Headers = list[tuple[bytes, bytes]]


class CounterState(msgspec.Struct, frozen=True):
    """reset_ms: until the bucket is full again, which is not how long to wait for the next request."""

    limit: int
    remaining: int
    reset_ms: int


class RateState(msgspec.Struct, frozen=True):
    """levels: per bucket the units left, or the requests running, as the limiter decided."""

    buckets: tuple[Bucket, ...]
    levels: tuple[int, ...]

    def counter(self, counter: Counter) -> CounterState | None:
        """The strictest rate bucket that counts this; None when nothing limits it."""
        states = [
            _counter_state(bucket, level)
            for bucket, level in zip(self.buckets, self.levels, strict=True)
            if bucket.counter is counter and bucket.kind is Kind.RATE
        ]
        return min(states, key=lambda state: state.remaining, default=None)

    def headers(self) -> Headers:
        """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, for the counters that are limited."""
        headers = []
        for counter in (Counter.REQUESTS, Counter.TOKENS):
            state = self.counter(counter)
            if state is not None:
                name = counter.value.encode()
                headers += [
                    (b"x-ratelimit-limit-" + name, b"%d" % state.limit),
                    (b"x-ratelimit-remaining-" + name, b"%d" % state.remaining),
                    (b"x-ratelimit-reset-" + name, go_duration(state.reset_ms).encode()),
                ]
        return headers


class KeyRateLimited(RateLimited):
    """A counter of the key is used up for now. bucket: which one. state: all of them."""

    def __init__(self, bucket: Bucket, amount: int, wait_ms: int, state: RateState) -> None:
        level = state.levels[state.buckets.index(bucket)]
        super().__init__(_refusal(bucket, amount, wait_ms, level), retry_after_s=wait_ms / 1_000)
        self.bucket = bucket
        self.state = state
        self.wait_ms = wait_ms

    @property
    def counter(self) -> Counter:
        """What ran out."""
        return self.bucket.counter

    def headers(self) -> Headers:
        """`retry-after` (whole seconds, rounded up), `retry-after-ms` and the state's headers."""
        seconds = -(-self.wait_ms // 1_000)
        return [(b"retry-after", b"%d" % seconds), (b"retry-after-ms", b"%d" % self.wait_ms), *self.state.headers()]


def too_expensive(bucket: Bucket, amount: int) -> RequestTooExpensive:
    """The error for a request that is larger than the whole bucket."""
    if bucket.counter is Counter.TOKENS:
        return RequestTooExpensive(
            f"This request may use up to {amount} tokens (prompt and largest possible output), more than the key's "
            f"limit of {bucket.limit} tokens per minute. Lower max_tokens or shorten the prompt."
        )
    return RequestTooExpensive(f"The key's limit of {bucket.limit} {_unit(bucket)} admits no request.")


def go_duration(ms: int) -> str:
    """Milliseconds as Go prints durations: `12ms`, `1s`, `1.5s`, `6m0s`, `1h0m0.25s`; nothing left is `0s`."""
    if 0 < ms < 1_000:
        return f"{ms}ms"
    seconds, ms = divmod(ms, 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{seconds}.{ms:03d}".rstrip("0") + "s" if ms else f"{seconds}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _counter_state(bucket: Bucket, units: int) -> CounterState:
    missing = bucket.capacity_units - units
    return CounterState(bucket.limit, max(0, units // bucket.period_ms), max(0, -(-missing // bucket.limit)))


def _refusal(bucket: Bucket, amount: int, wait_ms: int, level: int) -> str:
    if bucket.kind is Kind.CONCURRENCY:
        return f"{level} requests of this key are running, its limit is {bucket.limit}. Try again when one has ended."
    left = max(0, level // bucket.period_ms)
    needed = (
        f"this request may use up to {amount}" if bucket.counter is Counter.TOKENS else f"this request needs {amount}"
    )
    return (
        f"Rate limit reached: {bucket.limit} {_unit(bucket)}, of which {left} are left; {needed}. "
        f"Try again in {go_duration(wait_ms)}."
    )


def _unit(bucket: Bucket) -> str:
    period = {60_000: "per minute", 0: "at a time"}.get(bucket.period_ms, f"per {bucket.period_ms // 1_000} seconds")
    return f"{bucket.counter.value} {period}"
