"""Headers, as OpenAI's and Anthropic's clients read them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from contracts.generation import Tier
from gateway.limits.headers import RateState, go_duration, rfc3339
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.plan import Counter, Plan, plan_of
from tests.gateway.limits.store import left
from tests.gateway.limits.timed import one_rule

NOW_MS = 1_795_000_000_000


def two_levels(organization: Limits, key: Limits) -> Plan:
    rules = [Rule(Level.ORGANIZATION, "o", None, organization), Rule(Level.KEY, "k", None, key)]
    plan = plan_of("p", Levels.of("o", rules), Tier.CHAT)
    assert plan is not None
    return plan


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
    state = RateState(plan, (59 * 60_000, 0, 0, 5_000 * 60_000 + 1, 1, 0, 0), NOW_MS)
    assert state.headers() == [
        (b"x-ratelimit-limit-requests", b"60"),
        (b"x-ratelimit-remaining-requests", b"59"),
        (b"x-ratelimit-reset-requests", b"1s"),
        (b"x-ratelimit-limit-tokens", b"6000"),
        (b"x-ratelimit-remaining-tokens", b"5000"),
        (b"x-ratelimit-reset-tokens", b"10s"),
    ]


def test_anthropics_headers_say_the_moment_of_the_reset() -> None:
    plan = two_levels(
        Limits(input_tokens_per_minute=1_000, requests_per_minute=60), Limits(output_tokens_per_minute=600)
    )
    levels = (30 * 60_000, 400 * 60_000, 0, 0, 0, 0, 0, 0, 0, 300 * 60_000, 0, 0, 0, 0)
    headers = dict(RateState(plan, levels, NOW_MS).anthropic_headers())
    assert headers == {
        b"anthropic-ratelimit-requests-limit": b"60",
        b"anthropic-ratelimit-requests-remaining": b"30",
        b"anthropic-ratelimit-requests-reset": rfc3339(NOW_MS + 30_000).encode(),
        b"anthropic-ratelimit-input-tokens-limit": b"1000",
        b"anthropic-ratelimit-input-tokens-remaining": b"400",
        b"anthropic-ratelimit-input-tokens-reset": rfc3339(NOW_MS + 36_000).encode(),
        b"anthropic-ratelimit-output-tokens-limit": b"600",
        b"anthropic-ratelimit-output-tokens-remaining": b"300",
        b"anthropic-ratelimit-output-tokens-reset": rfc3339(NOW_MS + 30_000).encode(),
    }


def test_moments_are_rfc_3339_and_never_early() -> None:
    assert rfc3339(NOW_MS) == "2026-11-18T11:06:40Z"
    assert rfc3339(NOW_MS + 1) == "2026-11-18T11:06:41Z"
    assert datetime.fromisoformat(rfc3339(NOW_MS)) == datetime.fromtimestamp(NOW_MS / 1_000, UTC)


def test_debt_shows_as_nothing_left_and_a_longer_reset() -> None:
    plan = one_rule(Limits(tokens_per_minute=600))
    state = left(RateState(plan, (0, 0, 0, -600 * 60_000, 0, 0, 0), NOW_MS), Counter.TOKENS)
    assert (state.remaining, state.reset_ms) == (0, 120_000)


def test_of_two_levels_the_one_with_the_least_left_is_shown() -> None:
    plan = two_levels(Limits(tokens_per_minute=1_000), Limits(tokens_per_minute=600))
    units = (0, 0, 0, 100 * 60_000, 0, 0, 0, 0, 0, 0, 600 * 60_000, 0, 0, 0)
    assert left(RateState(plan, units, NOW_MS), Counter.TOKENS).limit == 1_000


def test_what_is_not_limited_is_not_mentioned() -> None:
    plan = one_rule(Limits(max_concurrency=2, tokens_per_day=5, money_micro_per_month=5))
    state = RateState(plan, (0, 0, 0, 0, 1, 5, 5), NOW_MS)
    assert state.headers() == state.anthropic_headers() == []


def test_shares_never_fall_to_zero_money_excepted() -> None:
    limits = Limits(requests_per_minute=3, tokens_per_minute=3, max_concurrency=1, money_micro_per_month=1_000)
    levels = Levels.of("o", [Rule(Level.KEY, "k", None, limits)])
    plan = plan_of("p", levels, Tier.CHAT, share=4, money_percent=1)
    assert plan is not None
    assert plan.rules[0].limits == (1, -1, -1, 1, 1, -1, 2)
