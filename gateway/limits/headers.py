"""What is left after one decision, as OpenAI's and Anthropic's clients read it. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from gateway.limits.plan import COUNTERS, MINUTE_MS, NO_LIMIT, Plan

Headers = list[tuple[bytes, bytes]]

REQUESTS, INPUT, OUTPUT, TOKENS = 0, 1, 2, 3
"""Positions in COUNTERS."""
_OPENAI = ((b"requests", REQUESTS), (b"tokens", TOKENS))
_ANTHROPIC = ((b"requests", REQUESTS), (b"tokens", TOKENS), (b"input-tokens", INPUT), (b"output-tokens", OUTPUT))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CounterState(msgspec.Struct, frozen=True):
    """reset_ms: until the bucket is full again, which is not how long to wait for the next request."""

    limit: int
    remaining: int
    reset_ms: int


class RateState(msgspec.Struct, frozen=True):
    """plan, left, now_ms: of the decision, as in `Decision`."""

    plan: Plan
    left: tuple[int, ...]
    now_ms: int

    def counter(self, position: int) -> CounterState | None:
        """The strictest of the rules that limit this counter per minute: the one with the least left; None: no rule."""
        strictest: tuple[int, int] | None = None
        for number, rule in enumerate(self.plan.rules):
            limit = rule.limits[position]
            if limit != NO_LIMIT:
                units = self.left[len(COUNTERS) * number + position]
                if strictest is None or units < strictest[0]:
                    strictest = units, limit
        if strictest is None:
            return None
        units, limit = strictest
        missing = limit * MINUTE_MS - units
        return CounterState(limit, max(0, units // MINUTE_MS), max(0, -(-missing // limit)))

    def headers(self) -> Headers:
        """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, for what is limited."""
        headers: Headers = []
        for name, position in _OPENAI:
            state = self.counter(position)
            if state is not None:
                headers += [
                    (b"x-ratelimit-limit-" + name, b"%d" % state.limit),
                    (b"x-ratelimit-remaining-" + name, b"%d" % state.remaining),
                    (b"x-ratelimit-reset-" + name, go_duration(state.reset_ms).encode()),
                ]
        return headers

    def anthropic_headers(self) -> Headers:
        """`anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`, for what is
        limited; `reset` is the moment, in RFC 3339, by the limiter's clock."""
        headers: Headers = []
        for name, position in _ANTHROPIC:
            state = self.counter(position)
            if state is not None:
                begin = b"anthropic-ratelimit-" + name
                headers += [
                    (begin + b"-limit", b"%d" % state.limit),
                    (begin + b"-remaining", b"%d" % state.remaining),
                    (begin + b"-reset", rfc3339(self.now_ms + state.reset_ms).encode()),
                ]
        return headers


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


def rfc3339(ms: int) -> str:
    """Epoch milliseconds as clients of Anthropic's parse them: whole seconds, rounded up, in UTC."""
    moment = _EPOCH + timedelta(seconds=-(-ms // 1_000))
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
