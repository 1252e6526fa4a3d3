"""The limiter on a real store: never one too many, never one too few, whoever asks and however often."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from gateway.limits.cost import Cost
from gateway.limits.levels import Limits
from gateway.limits.plan import Counter
from gateway.limits.refusal import LimitReached
from gateway.limits.reservations import Reservation
from tests.gateway.limits.store import AnyStore, MakeLimiter, MeasuredLimiter, left


def new_id() -> str:
    return uuid.uuid4().hex


async def outcomes(limiters: list[MeasuredLimiter], key: str, limits: Limits, tokens: int, count: int) -> list[object]:
    asks = [limiters[i % len(limiters)].take(new_id(), key, limits, tokens) for i in range(count)]
    return await asyncio.gather(*asks, return_exceptions=True)


def admitted(results: list[object]) -> list[Reservation]:
    unexpected = [result for result in results if not isinstance(result, Reservation | LimitReached)]
    assert unexpected == []
    return [result for result in results if isinstance(result, Reservation)]


@pytest.mark.parametrize(
    ("limits", "tokens", "winners"),
    [
        (Limits(requests_per_minute=1), 1, 1),
        (Limits(tokens_per_minute=6_000), 1_000, 6),  # the seventh would need ten seconds of refill
    ],
)
async def test_a_200_way_race_stops_at_the_limit(
    store: AnyStore, make_limiter: MakeLimiter, limits: Limits, tokens: int, winners: int
) -> None:
    limiter = await make_limiter(store.url)
    assert len(admitted(await outcomes([limiter], new_id(), limits, tokens, 200))) == winners


async def test_three_gateways_share_one_limit_exactly(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiters = [await make_limiter(store.url) for _ in range(3)]
    key = new_id()
    results = await outcomes(limiters, key, Limits(max_concurrency=20), 1, 200)
    winners = admitted(results)
    assert len(winners) == 20
    for index, reservation in enumerate(winners):
        await limiters[(index + 1) % 3].settle(reservation, Cost(0, 1))  # by another gateway than reserved it
    for limiter in limiters:
        await limiter.drain()
    assert len(admitted(await outcomes(limiters, key, Limits(max_concurrency=20), 1, 200))) == 20


async def test_same_id_reserves_once_and_settles_once(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    key, limits, repeated = (
        new_id(),
        Limits(requests_per_minute=2, tokens_per_minute=1_000, max_concurrency=1),
        new_id(),
    )
    reservation = await limiter.take(repeated, key, limits, 500)
    for _ in range(5):
        reservation = await limiter.take(repeated, key, limits, 500)
    assert left(reservation.state, Counter.REQUESTS).remaining == 1
    for _ in range(5):
        await limiter.settle(reservation, Cost(), refund_request=True)
    after = await limiter.take(new_id(), key, limits, 1)
    assert left(after.state, Counter.REQUESTS).remaining == 1
    assert left(after.state, Counter.TOKENS).remaining == 999


async def test_more_used_than_reserved_is_owed(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    key, limits = new_id(), Limits(tokens_per_minute=600)
    reservation = await limiter.take(new_id(), key, limits, 100)
    await limiter.settle(reservation, Cost(0, 1_200))
    with pytest.raises(LimitReached) as caught:
        await limiter.take(new_id(), key, limits, 1)
    assert caught.value.wait_ms > 50_000  # 600 below zero: a minute
    assert left(caught.value.state, Counter.TOKENS).remaining == 0


async def test_what_is_stored_expires_or_ends_with_its_reservation(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    key, limits = new_id(), Limits(requests_per_minute=5, tokens_per_minute=500, max_concurrency=5)
    open_one = await limiter.take(new_id(), key, limits, 100)
    settled = await limiter.take(new_id(), key, limits, 100)
    await limiter.settle(settled, Cost(0, 50))
    await limiter.drain()
    organization = open_one.caller.organization_id
    with store.client() as client:
        ttls_ms = {
            name.decode().rpartition("}:")[2]: client.pttl(name)
            for name in client.scan_iter(match=f"slipstream:{{{organization}}}:*")
        }
    assert ttls_ms.keys() == {"epochs", "open", f"key:{key}:*", f"tomb:{settled.id}"}
    assert 0 < ttls_ms[f"tomb:{settled.id}"] <= 300_000
    assert 39 * 86_400_000 < ttls_ms[f"key:{key}:*"] <= 40 * 86_400_000


async def test_a_refusal_leaves_nothing_behind(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    key, limits = new_id(), Limits(max_concurrency=1)
    only = await limiter.take(new_id(), key, limits)
    for _ in range(5):
        with pytest.raises(LimitReached):
            await limiter.take(new_id(), key, limits)
    with store.client() as client:
        assert client.hkeys(f"slipstream:{{{only.caller.organization_id}}}:open") == [only.id.encode()]
    await limiter.settle(only, Cost())
    with store.client() as client:
        assert not client.exists(f"slipstream:{{{only.caller.organization_id}}}:open")


async def test_a_key_without_limits_makes_no_call(make_limiter: MakeLimiter, tmp_path: Path) -> None:
    limiter = await make_limiter(f"unix://{tmp_path}/nobody-listens", call_timeout_s=0.05)
    reservation = await limiter.take(new_id(), new_id(), Limits(), 10**9)
    assert reservation.state is None
    await limiter.settle(reservation, Cost(0, 5))


async def test_script_flushed_under_way_is_loaded_again(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    key, limits = new_id(), Limits(tokens_per_minute=100)
    with store.client() as client:
        client.script_flush()
        first = await limiter.take(new_id(), key, limits, 100)
        client.script_flush()
    await limiter.settle(first, Cost())
    await limiter.drain()
    await limiter.take(new_id(), key, limits, 100)
    assert limiter.metric("dropped_settlements_total") == 0
