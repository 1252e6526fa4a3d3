"""The limiter on a real store: never one too many, never one too few, whoever asks and however often."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from contracts.errors import RateLimited, RequestTooExpensive
from gateway.limits.bucket import Counter
from gateway.limits.key_limits import KeyLimits
from gateway.limits.limiter import Reservation
from gateway.limits.rate_state import KeyRateLimited
from tests.gateway.limits.store import AnyStore, MakeLimiter, MeasuredLimiter, left


def new_id() -> str:
    return uuid.uuid4().hex


async def outcomes(
    limiters: list[MeasuredLimiter], key: str, limits: KeyLimits, tokens: int, count: int
) -> list[object]:
    asks = [limiters[i % len(limiters)].reserve(new_id(), key, limits, tokens) for i in range(count)]
    return await asyncio.gather(*asks, return_exceptions=True)


def admitted(results: list[object]) -> list[Reservation]:
    unexpected = [result for result in results if not isinstance(result, Reservation | KeyRateLimited)]
    assert unexpected == []
    return [result for result in results if isinstance(result, Reservation)]


async def test_200_way_race_for_one_request_has_one_winner(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    results = await outcomes([limiter], new_id(), KeyLimits(requests_per_minute=1), 1, 200)
    assert len(admitted(results)) == 1


async def test_200_way_race_for_tokens_stops_at_the_limit(store: AnyStore, make_limiter: MakeLimiter) -> None:
    # 6 fit; the 7th would need ten seconds of refill
    limiter = await make_limiter(store.url)
    results = await outcomes([limiter], new_id(), KeyLimits(tokens_per_minute=6_000), 1_000, 200)
    assert len(admitted(results)) == 6


async def test_three_gateways_share_one_limit_exactly(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiters = [await make_limiter(store.url) for _ in range(3)]
    key = new_id()
    results = await outcomes(limiters, key, KeyLimits(max_concurrency=20), 1, 200)
    winners = admitted(results)
    assert len(winners) == 20
    for index, reservation in enumerate(winners):
        await limiters[(index + 1) % 3].settle(reservation, 1)  # by another gateway than reserved it
    for limiter in limiters:
        await limiter.drain()
    assert len(admitted(await outcomes(limiters, key, KeyLimits(max_concurrency=20), 1, 200))) == 20


async def test_refused_by_one_counter_takes_nothing_from_the_others(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    key, limits = new_id(), KeyLimits(requests_per_minute=10, tokens_per_minute=100, max_concurrency=1)
    first = await limiter.reserve(new_id(), key, limits, 60)
    for _ in range(20):
        with pytest.raises(KeyRateLimited) as caught:
            await limiter.reserve(new_id(), key, limits, 60)
    assert caught.value.counter is Counter.TOKENS
    await limiter.settle(first, 0)
    second = await limiter.reserve(new_id(), key, limits, 60)
    requests = left(second.state, Counter.REQUESTS)
    assert requests.remaining == 8  # the twenty refusals cost none


async def test_refusal_names_counter_need_and_wait(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    key, limits = new_id(), KeyLimits(tokens_per_minute=600)
    await limiter.reserve(new_id(), key, limits, 600)
    with pytest.raises(RateLimited) as caught:
        await limiter.reserve(new_id(), key, limits, 100)
    refused = caught.value
    assert isinstance(refused, KeyRateLimited)
    assert "600 tokens per minute" in refused.message
    assert "100" in refused.message
    assert 0 < refused.wait_ms <= 10_000  # 100 tokens at 10 a second, less what the test itself took
    headers = dict(refused.headers())
    assert int(headers[b"retry-after"]) == -(-refused.wait_ms // 1000)
    assert int(headers[b"retry-after-ms"]) == refused.wait_ms
    assert headers[b"x-ratelimit-limit-tokens"] == b"600"
    assert b"x-ratelimit-limit-requests" not in headers
    assert refused.retry_after_s == refused.wait_ms / 1000


async def test_larger_than_the_whole_limit_is_another_error(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    with pytest.raises(RequestTooExpensive) as caught:
        await limiter.reserve(new_id(), new_id(), KeyLimits(tokens_per_minute=100), 101)
    assert caught.value.retry_after_s is None
    assert "101" in caught.value.message


async def test_same_id_reserves_once_and_settles_once(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    key, limits, repeated = (
        new_id(),
        KeyLimits(requests_per_minute=2, tokens_per_minute=1_000, max_concurrency=1),
        new_id(),
    )
    reservation = await limiter.reserve(repeated, key, limits, 500)
    for _ in range(5):
        reservation = await limiter.reserve(repeated, key, limits, 500)
    assert left(reservation.state, Counter.REQUESTS).remaining == 1
    for _ in range(5):
        await limiter.settle(reservation, 0, refund_request=True)
    after = await limiter.reserve(new_id(), key, limits, 1)
    assert left(after.state, Counter.REQUESTS).remaining == 1
    assert left(after.state, Counter.TOKENS).remaining == 999


async def test_more_used_than_reserved_is_owed(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    key, limits = new_id(), KeyLimits(tokens_per_minute=600)
    reservation = await limiter.reserve(new_id(), key, limits, 100)
    await limiter.settle(reservation, 1_200)
    with pytest.raises(KeyRateLimited) as caught:
        await limiter.reserve(new_id(), key, limits, 1)
    assert caught.value.wait_ms > 50_000  # 600 below zero: a minute
    assert left(caught.value.state, Counter.TOKENS).remaining == 0


async def test_every_key_expires(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    key, limits = new_id(), KeyLimits(requests_per_minute=5, tokens_per_minute=500, max_concurrency=5)
    open_one = await limiter.reserve(new_id(), key, limits, 100)
    settled = await limiter.reserve(new_id(), key, limits, 100)
    await limiter.settle(settled, 50)
    await limiter.drain()
    assert open_one.state is not None
    with store.client() as client:
        ttls_ms = {name: client.pttl(name) for name in client.scan_iter(match=f"slipstream:{{{key}}}:*")}
    assert len(ttls_ms) == 5  # three buckets, two records
    assert all(0 < ttl_ms <= 301_000 for ttl_ms in ttls_ms.values()), ttls_ms


async def test_a_key_without_limits_makes_no_call(make_limiter: MakeLimiter, tmp_path: Path) -> None:
    limiter = await make_limiter(f"unix://{tmp_path}/nobody-listens")
    reservation = await limiter.reserve(new_id(), new_id(), KeyLimits(), 10**9)
    assert reservation.state is None
    await limiter.settle(reservation, 5)


async def test_script_flushed_under_way_is_loaded_again(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url)
    key, limits = new_id(), KeyLimits(tokens_per_minute=100)
    with store.client() as client:
        client.script_flush()
        first = await limiter.reserve(new_id(), key, limits, 100)
        client.script_flush()
    await limiter.settle(first, 0)
    await limiter.drain()
    await limiter.reserve(new_id(), key, limits, 100)
    assert limiter.metric("dropped_settlements_total") == 0
