"""What pools cost, against a count of every replica in every second."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from contracts.desired_state import Pool, Replica
from control.slo.cost import MINUTE, GoodTokens, pool_costs, price_micro, rented

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def pool(name: str, replicas: int, price: float = 0.0) -> Pool:
    return Pool(
        name,
        "openai",
        tuple(Replica(f"{name}-{number}", "http://one:1") for number in range(replicas)),
        price_per_replica_hour=price,
    )


@pytest.mark.parametrize("seed", range(30))
def test_costs_equal_a_count_of_every_second_and_every_minute(seed: int) -> None:
    choose = random.Random(seed)
    begin, end = NOON, NOON + timedelta(seconds=choose.randrange(1, 3_000))
    moments = sorted(NOON + timedelta(seconds=choose.randrange(-2_000, 4_000)) for _ in range(choose.randrange(6)))
    prices = {"a": (0.0, 2.5), "b": (0.1, 1.999_999, 3.3), "c": (0.0,)}
    versions = [
        (
            moment,
            [
                pool(name, choose.randrange(4), choose.choice(some))
                for name, some in prices.items()
                if choose.random() < 0.8
            ],
        )
        for moment in moments
    ]
    length_s = (end - begin).seconds
    good = {name: [choose.choice((0, choose.randrange(10**6))) for _ in range(0, length_s, 60)] for name in prices}
    pools = rented(versions, begin, end)
    tokens = {
        name: GoodTokens(
            sum(by_minute),
            sum(
                count
                for number, count in enumerate(by_minute)
                if name in pools
                and any(since <= begin + number * MINUTE < until for since, until in pools[name].priced)
            ),
        )
        for name, by_minute in good.items()
    }
    found = {each.pool: each for each in pool_costs(pools, tokens)}

    used: dict[str, list[tuple[int, int]]] = {name: [] for name in prices}
    """By second: replicas and their price in millionths."""
    for second in range(length_s):
        in_force = [pools for moment, pools in versions if moment <= begin + timedelta(seconds=second)]
        named = {each.name: each for each in (in_force[-1] if in_force else ())}
        for name in prices:
            of = named.get(name)
            used[name].append((0, 0) if of is None else (len(of.replicas), price_micro(of)))
    for name, seconds in used.items():
        hours = Fraction(sum(replicas for replicas, _ in seconds), 3_600)
        if not hours and not sum(good[name]):
            assert name not in found
            continue
        cost = found[name]
        minutes = [(number, seconds[number * 60 : number * 60 + 60]) for number in range(len(good[name]))]
        priced = [(number, some) for number, some in minutes if all(price for _, price in some)]
        amount = sum((Fraction(n * price, 3_600) for _, some in priced for n, price in some), Fraction(0))
        assert cost.replica_hours == float(hours)
        assert cost.good_tokens == sum(good[name])
        assert cost.priced_since == (begin + priced[0][0] * MINUTE if priced else None)
        assert cost.priced_replica_hours == float(Fraction(sum(n for _, some in priced for n, _ in some), 3_600))
        assert cost.priced_good_tokens == sum(good[name][number] for number, _ in priced)
        assert (cost.amount_micro is None) == (not priced)
        assert abs((cost.amount_micro or 0) - amount) <= Fraction(1, 2)
        if priced and cost.priced_good_tokens:
            assert cost.per_million_good_tokens_micro is not None
            exact = amount * 1_000_000 / cost.priced_good_tokens
            assert abs(cost.per_million_good_tokens_micro - exact) <= Fraction(1, 2)
        else:
            assert cost.per_million_good_tokens_micro is None


def test_prices_are_what_was_written() -> None:
    assert [price_micro(pool("p", 1, price)) for price in (0.1, 2.5, 0.000_001, 1.999_999, 0)] == [
        100_000, 2_500_000, 1, 1_999_999, 0,
    ]  # fmt: skip


def test_requests_that_ran_nowhere_are_no_pool() -> None:
    assert pool_costs(rented([], NOON, NOON + timedelta(hours=1)), {"": GoodTokens(5, 0)}) == []
