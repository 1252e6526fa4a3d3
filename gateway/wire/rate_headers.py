"""OpenAI's rate-limit headers."""

from __future__ import annotations

from gateway.wire.errors import Headers
from gateway.wire.rate_state import RateLimitStatus, go_duration

_NAMES = tuple(
    (
        f"{name}_per_minute",
        f"x-ratelimit-limit-{name}".encode(),
        f"x-ratelimit-remaining-{name}".encode(),
        f"x-ratelimit-reset-{name}".encode(),
    )
    for name in ("requests", "tokens")
)


def rate_headers(state: RateLimitStatus) -> Headers:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, for counters that have a limit."""
    headers: Headers = []
    for counter, limit, remaining, reset in _NAMES:
        found = state.counter(counter)
        if found is not None:
            headers += [
                (limit, b"%d" % found.limit),
                (remaining, b"%d" % found.remaining),
                (reset, go_duration(found.reset_ms).encode()),
            ]
    return headers
