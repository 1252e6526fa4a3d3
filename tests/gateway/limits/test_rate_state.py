"""Where counters stand, and when they are full again."""

from __future__ import annotations

from datetime import UTC, datetime

from contracts.generation import Tier
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.plan import PER_MINUTE, Counter, Plan, plan_of
from gateway.limits.rate_state import RateState
from gateway.limits.refusal import rfc3339
from gateway.wire.rate_headers import rate_headers
from gateway.wire.rate_state import CounterState
from tests.gateway.limits.store import left
from tests.gateway.limits.timed import one_rule

NOW_MS = 1_795_000_000_000


def two_levels(organization: Limits, key: Limits) -> Plan:
    rules = [Rule(Level.ORGANIZATION, "o", None, organization), Rule(Level.KEY, "k", None, key)]
    plan = plan_of("p", Levels.of("o", rules), Tier.CHAT)
    assert plan is not None
    return plan


def test_a_counter_has_what_is_left_and_when_it_is_full_again() -> None:
    plan = two_levels(
        Limits(input_tokens_per_minute=1_000, requests_per_minute=60), Limits(output_tokens_per_minute=600)
    )
    units = (30 * 60_000, 400 * 60_000, 0, 0, 0, 0, 0, 0, 0, 300 * 60_000, 0, 0, 0, 0)
    state = RateState(plan, units, NOW_MS)
    assert left(state, Counter.REQUESTS) == CounterState(60, 30, 30_000)
    assert left(state, Counter.INPUT_TOKENS) == CounterState(1_000, 400, 36_000)
    assert left(state, Counter.OUTPUT_TOKENS) == CounterState(600, 300, 30_000)
    assert state.counter(Counter.TOKENS) is None


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
    assert not any(state.counter(name) for name in PER_MINUTE)
    assert rate_headers(state) == []


def test_shares_never_fall_to_zero_money_excepted() -> None:
    limits = Limits(requests_per_minute=3, tokens_per_minute=3, max_concurrency=1, money_micro_per_month=1_000)
    levels = Levels.of("o", [Rule(Level.KEY, "k", None, limits)])
    plan = plan_of("p", levels, Tier.CHAT, share=4, money_percent=1)
    assert plan is not None
    assert plan.rules[0].limits == (1, -1, -1, 1, 1, -1, 2)
