"""Anthropic's rate-limit headers."""

from __future__ import annotations

from datetime import UTC, datetime

from gateway.wire.errors import Headers
from gateway.wire.rate_state import RateLimitStatus

_NAMES = (
    (b"requests", "requests_per_minute"),
    (b"tokens", "tokens_per_minute"),
    (b"input-tokens", "input_tokens_per_minute"),
    (b"output-tokens", "output_tokens_per_minute"),
)


def rate_headers(state: RateLimitStatus) -> Headers:
    """`anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`, for counters that
    have a limit. reset: the time when the counter is full again."""
    headers: Headers = []
    for name, counter in _NAMES:
        found = state.counter(counter)
        if found is not None:
            full = datetime.fromtimestamp((state.now_ms + found.reset_ms) // 1_000, UTC)
            headers += [
                (b"anthropic-ratelimit-" + name + b"-limit", b"%d" % found.limit),
                (b"anthropic-ratelimit-" + name + b"-remaining", b"%d" % found.remaining),
                (b"anthropic-ratelimit-" + name + b"-reset", full.strftime("%Y-%m-%dT%H:%M:%SZ").encode()),
            ]
    return headers
