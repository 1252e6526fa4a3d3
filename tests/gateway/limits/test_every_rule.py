"""Every level, tier and counter refuses by its own name, with the wait that its own arithmetic gives."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import msgspec
import pytest

from contracts.errors import RequestTooExpensive
from contracts.generation import Caller, Tier
from gateway.limits.cost import Cost
from gateway.limits.counter_snapshot import counters_of
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.plan import DAY_MS, Counter, plan_of
from gateway.limits.rate_state import RateState
from gateway.limits.refusal import BudgetReached, LimitReached, refused
from gateway.wire.errors import body_of, headers_of, status_of
from gateway.wire.rate_headers import rate_headers
from tests.gateway.limits.ledgers import Platform
from tests.gateway.limits.store import AnyStore, MakeLimiter
from tests.gateway.limits.timed import TimedStore, one_rule

EVERY = [
    pytest.param(level, tier, counter, id=f"{level.value}-{tier.value if tier else 'all'}-{counter.value}")
    for level in Level
    for tier in (None, Tier.CHAT)
    for counter in Counter
]
WIDE = Limits(**dict.fromkeys(Limits.__struct_fields__, 1_000_000))
"""On every other level: never in the way."""
COST = Cost(input_tokens=30, output_tokens=30, micro=60)
LIMITS = {Counter.REQUESTS: 1, Counter.CONCURRENCY: 1, Counter.INPUT_TOKENS: 50, Counter.OUTPUT_TOKENS: 50}


@pytest.mark.parametrize(("level", "tier", "counter"), EVERY)
async def test_the_refusal_says_which_rule_and_when_it_frees(
    fleet: Platform, level: Level, tier: Tier | None, counter: Counter
) -> None:
    gateway = await fleet.gateway()
    limit = LIMITS.get(counter, 100)
    others = [(each, None, WIDE) for each in Level if each is not level]
    levels = fleet.levels((level, tier, Limits(**{counter.value: limit})), *others)

    async def ask(asked_tier: Tier = Tier.CHAT) -> None:
        await gateway.reserve(uuid.uuid4().hex, fleet.caller, asked_tier, levels, COST)

    await ask()
    with pytest.raises((LimitReached, BudgetReached)) as caught:
        await ask()
    error = caught.value
    assert isinstance(error, LimitReached | BudgetReached)
    detail = error.limit
    subject = getattr(fleet.caller, f"{level.value}_id")
    assert (detail.level, detail.subject_id, detail.tier) == (level, subject, tier.value if tier else None)
    assert (detail.counter, detail.limit) == (counter, limit)
    needed = {Counter.REQUESTS: 1, Counter.CONCURRENCY: 1, Counter.INPUT_TOKENS: 30, Counter.OUTPUT_TOKENS: 30}
    needed |= {Counter.TOKENS: 60, Counter.DAY_TOKENS: 60, Counter.MONEY: 60}
    assert detail.requested == needed[counter]
    if counter in (Counter.CONCURRENCY, Counter.DAY_TOKENS, Counter.MONEY):
        assert error.wait_ms == 1_000  # held by a request that runs, which may end any moment
    else:
        # what is missing comes back at `limit` a minute; the test itself took a little of it
        missing = 2 * needed[counter] - limit
        assert missing * 60_000 / limit - 5_000 < error.wait_ms <= missing * 60_000 / limit
    assert detail.frees_in_ms == error.wait_ms
    assert level.value in error.message
    if counter not in (Counter.CONCURRENCY, Counter.MONEY):
        assert f"{limit} {counter.value.replace('_', ' ')}" in error.message
    assert ("in tier chat" in error.message) == (tier is not None)
    body = msgspec.json.decode(body_of(error))["error"]
    assert body["limit"] == msgspec.to_builtins(detail)
    assert status_of(error) == 429
    assert body["code"] == ("insufficient_quota" if counter is Counter.MONEY else "rate_limit_exceeded")
    headers = dict(headers_of(error))
    assert int(headers[b"retry-after"]) == -(-error.wait_ms // 1_000)
    assert int(headers[b"retry-after-ms"]) == error.wait_ms
    if tier is None:
        with pytest.raises((LimitReached, BudgetReached)):
            await ask(Tier.AUTOCOMPLETE)
    else:
        await ask(Tier.AUTOCOMPLETE)  # another tier, another limit


async def test_the_strictest_level_is_the_one_that_is_named(fleet: Platform) -> None:
    gateway = await fleet.gateway()
    levels = fleet.levels(
        (Level.ORGANIZATION, None, Limits(tokens_per_minute=6_000)),
        (Level.PROJECT, None, Limits(tokens_per_minute=600)),
        (Level.KEY, None, Limits(requests_per_minute=60)),
    )
    await fleet.reserve(gateway, levels, 0, tokens=600)
    with pytest.raises(LimitReached) as caught:
        await fleet.reserve(gateway, levels, 0, tokens=100)
    assert caught.value.limit.level == "project"
    headers = dict(rate_headers(caught.value.state))
    assert headers[b"x-ratelimit-limit-tokens"] == b"600"
    assert headers[b"x-ratelimit-remaining-tokens"] == b"0"
    assert headers[b"x-ratelimit-limit-requests"] == b"60"


async def test_one_rule_refusing_takes_nothing_from_the_others(fleet: Platform) -> None:
    gateway = await fleet.gateway()
    levels = fleet.levels(
        (Level.ORGANIZATION, None, Limits(tokens_per_day=1_000, money_micro_per_month=1_000)),
        (Level.KEY, None, Limits(max_concurrency=1, requests_per_minute=100)),
    )
    first = await fleet.reserve(gateway, levels, 10, tokens=10)
    for _ in range(20):
        with pytest.raises(LimitReached):
            await fleet.reserve(gateway, levels, 10, tokens=10)
    await fleet.finish("a", first, 10, tokens=10)
    left = await gateway.left(levels, Tier.CHAT)
    assert left[5:7] == (990, 990)
    assert left[7] // 60_000 >= 99  # requests: only the one that ran was taken
    assert left[11] == 0  # and none runs


async def test_a_tenant_is_not_refused_for_anothers_load(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    limits = Limits(requests_per_minute=10, tokens_per_day=1_000, max_concurrency=2)
    organization = uuid.uuid4().hex

    async def ask(project: str, key: str) -> bool:
        rules = [Rule(Level.PROJECT, project, None, limits), Rule(Level.KEY, key, None, limits)]
        levels = Levels.of(organization, rules)
        try:
            reservation = await limiter.reserve(
                uuid.uuid4().hex, Caller(organization, project, key), Tier.CHAT, levels, Cost(1, 1, 0)
            )
        except LimitReached:
            return False
        await limiter.settle(reservation, Cost(1, 1, 0))
        return True

    loud = [await ask("loud", "k1") for _ in range(100)]
    assert sum(loud) == 10
    assert all([await ask("quiet", "k2") for _ in range(10)])


async def test_larger_than_a_limit_of_any_level_names_it_and_asks_nobody(
    make_limiter: MakeLimiter, store: AnyStore
) -> None:
    limiter = await make_limiter(store.url)
    rules = [
        Rule(Level.ORGANIZATION, "o", None, Limits(output_tokens_per_minute=10)),
        Rule(Level.KEY, "k", None, Limits(output_tokens_per_minute=100)),
    ]
    with pytest.raises(RequestTooExpensive) as caught:
        await limiter.reserve("r", Caller("o", "p", "k"), Tier.CHAT, Levels.of("o", rules), Cost(0, 11, 0))
    detail = caught.value.limit
    assert detail is not None
    assert (detail.level, detail.counter, detail.requested) == ("organization", "output_tokens_per_minute", 11)
    assert "11" in caught.value.message
    assert detail.frees_in_ms is caught.value.retry_after_s is None
    assert (b"x-should-retry", b"false") in headers_of(caught.value)


def test_a_days_limit_frees_at_midnight_and_is_not_worth_retrying(store: AnyStore) -> None:
    with store.client() as client:
        timed = TimedStore(client)
        plan = one_rule(Limits(tokens_per_day=100), organization=uuid.uuid4().hex)
        noon_ms = 20_000 * DAY_MS + DAY_MS // 2
        assert timed.reserve(noon_ms, plan, "e", "a", Cost(0, 80)).status == 0
        timed.settle(noon_ms, plan, "a", 1, Cost(0, 80))
        decided = timed.reserve(noon_ms, plan, "e", "b", Cost(0, 21))
        assert decided.wait_ms == DAY_MS // 2
        error = refused(plan, decided, Cost(0, 21), "EUR")
        assert error.message == (
            "Limit of this key reached: 100 tokens per day, of which 20 are left; this request may use up to 21. "
            "Try again after 2024-10-05T00:00:00Z."
        )
        assert (b"retry-after", b"43200") in headers_of(error)
        assert (b"x-should-retry", b"false") in headers_of(error)
        assert error.code == "rate_limit_exceeded"
        assert timed.reserve(20_001 * DAY_MS - 1, plan, "e", "b", Cost(0, 21)).wait_ms == 1
        assert timed.reserve(20_001 * DAY_MS, plan, "e", "b", Cost(0, 100)).status == 0


def test_a_refusal_says_how_far_a_lowered_limit_is_passed(store: AnyStore) -> None:
    before = Limits(tokens_per_day=100, max_concurrency=9, money_micro_per_month=1_000_000)
    after = [Limits(tokens_per_day=50), Limits(max_concurrency=2), Limits(money_micro_per_month=250_000)]
    organization, now_ms = uuid.uuid4().hex, 20_000 * DAY_MS
    wide = one_rule(before, organization=organization)
    month = datetime.fromtimestamp(now_ms / 1_000, UTC)
    with store.client() as client:
        timed = TimedStore(client)
        assert timed.begin(now_ms, wide.rules[0].key, "t")
        assert timed.seed(now_ms, wide.rules[0].key, "t", 0, 0, month.year * 12 + month.month - 1) == 1
        for number in range(4):
            assert timed.reserve(now_ms, wide, "e", str(number), Cost(0, 20, 200_000)).status == 0
        said = []
        for limits in after:
            plan, cost = one_rule(limits, organization=organization), Cost(0, 1, 1)
            decided = timed.reserve(now_ms, plan, "e", "next", cost)
            said.append(refused(plan, decided, cost, "EUR").message)
            (counter,) = counters_of(RateState(plan, decided.left, decided.now_ms))
            assert (counter.remaining, counter.used) == (0, {50: 80, 2: 4, 250_000: 800_000}[counter.limit])
    assert said == [
        "Limit of this key reached: 50 tokens per day, and 80 are used or reserved by running requests; this "
        "request may "
        "use up to 1. Try again in 1s.",
        "4 requests of this key are running, its limit is 2. Try again when 3 have ended.",
        "Budget of this key reached: 0.25 EUR a month (UTC), and 0.8 EUR is spent or reserved for running requests; "
        "this one may cost up to 0.000001 EUR (prompt and largest possible output). Try again in 1s.",
    ]


def test_levels_are_equal_when_their_rules_are() -> None:
    rules = [Rule(Level.KEY, "k", None, Limits(max_concurrency=1)), Rule(Level.PROJECT, "p", None, Limits())]
    assert Levels.of("o", rules).identity == Levels.of("o", rules[:1]).identity != ""
    assert Levels.of("o", rules).identity != Levels.of("o2", rules).identity
    assert Levels.of("o", []).identity == Levels().identity == ""
    assert plan_of("p", Levels.of("o", [Rule(Level.KEY, "k", Tier.CHAT, WIDE)]), Tier.AUTOCOMPLETE) is None
