"""OpenAI's headers about limits."""

from __future__ import annotations

from gateway.wire.errors import Headers
from gateway.wire.rate_state import RateLimitStatus, go_duration

_NAMES = ((b"requests", "requests_per_minute"), (b"tokens", "tokens_per_minute"))


def rate_headers(state: RateLimitStatus) -> Headers:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, for counters that are limited."""
    headers: Headers = []
    for name, counter in _NAMES:
        found = state.counter(counter)
        if found is not None:
            headers += [
                (b"x-ratelimit-limit-" + name, b"%d" % found.limit),
                (b"x-ratelimit-remaining-" + name, b"%d" % found.remaining),
                (b"x-ratelimit-reset-" + name, go_duration(found.reset_ms).encode()),
            ]
    return headers
