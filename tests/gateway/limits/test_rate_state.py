"""Headers and sentences, as clients read them."""

from __future__ import annotations

import pytest

from gateway.limits.bucket import Bucket, Counter, Decision, Kind, Status, plan_of
from gateway.limits.key_limits import KeyLimits
from gateway.limits.rate_state import KeyRateLimited, RateState, go_duration
from tests.gateway.limits.store import left


def buckets_of(limits: KeyLimits, share: int = 1) -> tuple[Bucket, ...]:
    plan = plan_of("p", "k", limits, share)
    assert plan is not None
    return plan.buckets


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


def test_headers_of_a_fresh_decision() -> None:
    buckets = buckets_of(KeyLimits(60, 6_000, 3))
    state = RateState(buckets, (59 * 60_000, 5_000 * 60_000 + 1, 1))
    assert state.headers() == [
        (b"x-ratelimit-limit-requests", b"60"),
        (b"x-ratelimit-remaining-requests", b"59"),
        (b"x-ratelimit-reset-requests", b"1s"),
        (b"x-ratelimit-limit-tokens", b"6000"),
        (b"x-ratelimit-remaining-tokens", b"5000"),
        (b"x-ratelimit-reset-tokens", b"10s"),
    ]


def test_debt_shows_as_nothing_left_and_a_longer_reset() -> None:
    buckets = buckets_of(KeyLimits(tokens_per_minute=600))
    state = left(RateState(buckets, (-600 * 60_000,)), Counter.TOKENS)
    assert (state.remaining, state.reset_ms) == (0, 120_000)


def test_of_two_levels_the_strictest_is_shown() -> None:
    buckets = buckets_of(KeyLimits(tokens_per_minute=600))
    wider = Bucket(Counter.TOKENS, Kind.RATE, "p:{k}:organization", 1_000, 60_000)
    state = RateState((wider, *buckets), (100 * 60_000, 600 * 60_000))
    assert left(state, Counter.TOKENS).limit == 1_000


def test_concurrency_is_named_in_the_refusal_and_waits_a_second() -> None:
    buckets = buckets_of(KeyLimits(max_concurrency=2))
    decided = Decision(Status.REFUSED, 1, 1_000, (2,))
    refused = KeyRateLimited(buckets[0], 1, decided.wait_ms, RateState(buckets, decided.levels))
    assert "2 requests of this key are running" in refused.message
    assert refused.headers() == [(b"retry-after", b"1"), (b"retry-after-ms", b"1000")]


def test_shares_never_fall_to_zero() -> None:
    buckets = buckets_of(KeyLimits(3, 3, 1), share=4)
    assert [bucket.limit for bucket in buckets] == [1, 1, 1]
