"""Limits as OpenAI's clients read them."""

from __future__ import annotations

import pytest

from gateway.limits.levels import Limits
from gateway.limits.rate_state import RateState
from gateway.wire.rate_headers import rate_headers
from gateway.wire.rate_state import go_duration
from tests.gateway.limits.timed import one_rule


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (1, "1ms"),
        (12, "12ms"),
        (999, "999ms"),
        (1_000, "1s"),
        (1_500, "1.5s"),
        (8_572, "8.572s"),
        (59_999, "59.999s"),
        (60_000, "1m0s"),
        (360_000, "6m0s"),
        (86_400, "1m26.4s"),
        (3_600_000, "1h0m0s"),
        (3_661_001, "1h1m1.001s"),
    ],
)
def test_durations_are_written_as_go_writes_them(ms: int, text: str) -> None:
    assert go_duration(ms) == text


def test_openais_headers_of_a_fresh_decision() -> None:
    plan = one_rule(Limits(requests_per_minute=60, tokens_per_minute=6_000, max_concurrency=3))
    state = RateState(plan, (59 * 60_000, 0, 0, 5_000 * 60_000 + 1, 1, 0, 0), 0)
    assert rate_headers(state) == [
        (b"x-ratelimit-limit-requests", b"60"),
        (b"x-ratelimit-remaining-requests", b"59"),
        (b"x-ratelimit-reset-requests", b"1s"),
        (b"x-ratelimit-limit-tokens", b"6000"),
        (b"x-ratelimit-remaining-tokens", b"5000"),
        (b"x-ratelimit-reset-tokens", b"10s"),
    ]
