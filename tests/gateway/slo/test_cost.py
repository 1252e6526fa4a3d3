"""What pools cost, against a count of every replica in every second."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from contracts.desired_state import Pool, Replica
from gateway.slo.cost import PoolCost, pool_costs, price_micro

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def pool(name: str, replicas: int, price: float = 0.0) -> Pool:
    return Pool(
        name,
        "openai",
        tuple(Replica(f"{name}-{number}", "http://one:1") for number in range(replicas)),
        price_per_replica_hour=price,
    )


@pytest.mark.parametrize("seed", range(30))
def test_costs_equal_a_count_of_every_second(seed: int) -> None:
    choose = random.Random(seed)
    begin, end = NOON, NOON + timedelta(seconds=choose.randrange(1, 3_000))
    moments = sorted(NOON + timedelta(seconds=choose.randrange(-2_000, 4_000)) for _ in range(choose.randrange(6)))
    prices = {"a": choose.choice((0.0, 2.5)), "b": choose.choice((0.1, 1.999_999, 3.3)), "c": 0.0}
    versions = [
        (moment, [pool(name, choose.randrange(4), price) for name, price in prices.items() if choose.random() < 0.8])
        for moment in moments
    ]
    good = {name: choose.choice((0, 1, choose.randrange(10**7))) for name in prices}
    seconds: Counter[str] = Counter()
    for second in range((end - begin).seconds):
        now = begin + timedelta(seconds=second)
        in_force = [pools for moment, pools in versions if moment <= now]
        for each in in_force[-1] if in_force else ():
            seconds[each.name] += len(each.replicas)
    found = {each.pool: each for each in pool_costs(versions, {k: v for k, v in good.items() if v}, begin, end)}
    assert set(found) == {name for name in prices if seconds[name] or good[name]}
    for name, cost in found.items():
        assert cost.replica_hours == seconds[name] / 3_600
        assert cost.good_tokens == good[name]
        exact = Fraction(seconds[name], 3_600) * round(prices[name] * 1_000_000)
        if cost.amount_micro is None:
            assert not exact
            assert cost.per_million_good_tokens_micro is None
            continue
        assert abs(cost.amount_micro - exact) <= Fraction(1, 2)
        if good[name]:
            assert cost.per_million_good_tokens_micro is not None
            assert abs(cost.per_million_good_tokens_micro - exact * 1_000_000 / good[name]) <= Fraction(1, 2)
        else:
            assert cost.per_million_good_tokens_micro is None


def test_prices_are_what_was_written() -> None:
    assert [price_micro(pool("p", 1, price)) for price in (0.1, 2.5, 0.000_001, 1.999_999, 0)] == [
        100_000, 2_500_000, 1, 1_999_999, 0,
    ]  # fmt: skip


def test_a_price_change_counts_from_its_version() -> None:
    hour = timedelta(hours=1)
    versions = [(NOON, [pool("p", 2, 1.0)]), (NOON + hour, [pool("p", 2, 3.0)])]
    assert pool_costs(versions, {"p": 500_000}, NOON, NOON + 2 * hour) == [
        PoolCost(
            pool="p",
            replica_hours=4.0,
            amount_micro=8_000_000,
            good_tokens=500_000,
            per_million_good_tokens_micro=16_000_000,
        )
    ]


def test_requests_that_ran_nowhere_are_no_pool() -> None:
    assert pool_costs([], {"": 5}, NOON, NOON + timedelta(hours=1)) == []
