"""What the limiter does when Valkey is slow, frozen, killed, or was never there."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from pathlib import Path

import pytest

from contracts.errors import InternalError, LimitError, LimiterUnavailable
from gateway.limits.cost import Cost
from gateway.limits.levels import Limits
from gateway.limits.plan import Counter
from gateway.limits.refusal import LimitReached
from tests.gateway.limits.store import AnyStore, MakeLimiter, MeasuredLimiter, Store, left
from tests.waiting import eventually


def new_id() -> str:
    return uuid.uuid4().hex


def running(store: Store, key: str) -> int:
    with store.client() as client:
        return int(client.hlen(f"slipstream:{{org-{key}}}:open"))


async def test_refuses_loudly_when_nobody_listens(make_limiter: MakeLimiter, tmp_path: Path) -> None:
    limiter = await make_limiter(f"unix://{tmp_path}/nobody", call_timeout_s=0.05)
    with pytest.raises(LimiterUnavailable) as caught:
        await limiter.take(new_id(), new_id(), Limits(requests_per_minute=5), 1)
    assert caught.value.retry_after_s == 1.0
    assert limiter.metric("mode") == 2
    assert limiter.metric("unavailable_total", handled="refused") == 1


async def test_enforces_its_share_when_told_to(make_limiter: MakeLimiter, tmp_path: Path) -> None:
    limiter = await make_limiter(
        f"unix://{tmp_path}/nobody", call_timeout_s=0.05, when_unavailable="local", expected_instances=4
    )
    key, limits = new_id(), Limits(requests_per_minute=24, tokens_per_minute=4_000, max_concurrency=12)
    assert limiter.metric("mode") == 1
    open_ones = [await limiter.take(new_id(), key, limits, 100) for _ in range(3)]
    with pytest.raises(LimitReached) as caught:
        await limiter.take(new_id(), key, limits, 100)
    assert caught.value.limit.counter == Counter.CONCURRENCY  # 12 / 4
    for reservation in open_ones:
        await limiter.settle(reservation, Cost())
        await limiter.settle(reservation, Cost())
    whole_share = await limiter.take(new_id(), key, limits, 1_000)
    assert left(whole_share.state, Counter.REQUESTS).remaining == 2  # 24 / 4, four made
    assert left(whole_share.state, Counter.TOKENS).remaining == 0
    with pytest.raises(LimiterUnavailable):  # fits the limit, not the share: not the client's fault
        await limiter.take(new_id(), key, limits, 2_000)
    assert limiter.metric("unavailable_total", handled="local") == 5
    assert limiter.metric("unavailable_total", handled="refused") == 1


async def test_lost_reply_leaks_nothing(own_store: Store, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(own_store.url, call_timeout_s=1)
    key, limits = new_id(), Limits(requests_per_minute=1, tokens_per_minute=500, max_concurrency=1)
    lost = new_id()
    own_store.freeze()
    with pytest.raises(LimiterUnavailable):
        await limiter.take(lost, key, limits, 500)
    own_store.thaw()  # runs the reserve now, and the undo behind it
    await limiter.drain()
    assert running(own_store, key) == 0
    with pytest.raises(InternalError):  # undone: the id is spent
        await limiter.take(lost, key, limits, 500)
    assert (await limiter.take(new_id(), key, limits, 500)).state is not None


async def test_cancelled_reserve_leaks_nothing(own_store: Store, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(own_store.url, call_timeout_s=5)
    key, limits = new_id(), Limits(max_concurrency=1)
    own_store.freeze()
    task = asyncio.create_task(limiter.take(new_id(), key, limits, 1))
    await asyncio.sleep(0)  # it has sent and waits
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    own_store.thaw()
    await limiter.drain()
    await limiter.take(new_id(), key, limits, 1)


async def test_settlement_survives_a_killed_valkey(own_store: Store, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(own_store.url)
    key, limits = new_id(), Limits(tokens_per_minute=500, max_concurrency=1)
    reservation = await limiter.take(new_id(), key, limits, 500)
    own_store.kill()
    await eventually(lambda: not limiter.connected)
    await limiter.settle(reservation, Cost())
    assert limiter.metric("delayed_settlements") == 1
    own_store.start()
    await limiter.wait_connected()
    await limiter.drain()
    assert limiter.metric("delayed_settlements") == 0
    assert limiter.metric("dropped_settlements_total") == 0
    assert running(own_store, key) == 0
    assert (await limiter.take(new_id(), key, limits, 500)).state is not None


async def test_too_many_delayed_settlements_drop_the_oldest_and_say_so(
    own_store: Store, make_limiter: MakeLimiter
) -> None:
    limiter = await make_limiter(own_store.url, max_delayed_settlements=3)
    key, limits = new_id(), Limits(max_concurrency=5)
    open_ones = [await limiter.take(new_id(), key, limits, 1) for _ in range(5)]
    own_store.kill()
    await eventually(lambda: not limiter.connected)
    for reservation in open_ones:
        await limiter.settle(reservation, Cost(0, 1))
    assert limiter.metric("dropped_settlements_total") == 2
    assert limiter.metric("delayed_settlements") == 3


async def test_valkey_killed_under_load_comes_back_to_zero(own_store: Store, make_limiter: MakeLimiter) -> None:
    """On a busy disk the store comes back without its last writes: settlements that it had answered are open again."""
    limiters = [await make_limiter(own_store.url, stray_s=0.5) for _ in range(3)]
    key, limits = new_id(), Limits(requests_per_minute=1_000_000, max_concurrency=8)
    results = {"admitted": 0, "unavailable": 0, "refused": 0}
    stop = asyncio.Event()

    async def load(limiter: MeasuredLimiter) -> None:
        while not stop.is_set():
            try:
                reservation = await limiter.take(new_id(), key, limits, 1)
                results["admitted"] += 1
                await asyncio.sleep(0)
                await limiter.settle(reservation, Cost(0, 1))
            except LimiterUnavailable:
                results["unavailable"] += 1
                await asyncio.sleep(0.001)
            except LimitReached:
                results["refused"] += 1
                await asyncio.sleep(0)

    tasks = [asyncio.create_task(load(limiter)) for limiter in limiters for _ in range(5)]
    await eventually(lambda: results["admitted"] > 200)
    own_store.kill()
    await eventually(lambda: results["unavailable"] > 10)
    own_store.start()
    before = results["admitted"]
    await eventually(lambda: results["admitted"] > before + 200)
    stop.set()
    await asyncio.gather(*tasks)
    for limiter in limiters:
        await limiter.wait_connected()
        await limiter.drain()
        assert limiter.metric("mode") == 0
    await eventually(lambda: running(own_store, key) == 0)
    assert results["refused"] > 0


async def test_heartbeat_restores_places_after_lost_data(own_store: Store, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(own_store.url, lease_s=0.6)
    key, limits = new_id(), Limits(requests_per_minute=10, max_concurrency=5)
    kept = await limiter.take(new_id(), key, limits, 1)
    ended = await limiter.take(new_id(), key, limits, 1)
    await limiter.settle(ended, Cost(0, 1))
    await limiter.drain()
    with own_store.client() as client:
        client.flushdb()
        await eventually(lambda: running(own_store, key) > 0)
        assert client.hkeys(f"slipstream:{{org-{key}}}:open") == [kept.id.encode()]


async def test_heartbeat_extends_the_lease(store: AnyStore, make_limiter: MakeLimiter) -> None:
    limiter = await make_limiter(store.url, lease_s=0.6)
    key, limits = new_id(), Limits(max_concurrency=1)
    await limiter.take(new_id(), key, limits, 1)
    with store.client() as client:
        (first_ms,) = client.hvals(f"slipstream:{{org-{key}}}:epochs")
        await eventually(lambda: client.hvals(f"slipstream:{{org-{key}}}:epochs") > [first_ms])


async def test_places_taken_locally_are_announced_when_valkey_is_back(
    own_store: Store, make_limiter: MakeLimiter
) -> None:
    limiter = await make_limiter(own_store.url, when_unavailable="local", lease_s=0.6)
    key, limits = new_id(), Limits(max_concurrency=2)
    own_store.kill()
    await eventually(lambda: not limiter.connected)
    local = await limiter.take(new_id(), key, limits, 1)
    assert local.local is not None
    own_store.start()
    await limiter.wait_connected()
    await eventually(lambda: running(own_store, key) == 1)
    await limiter.settle(local, Cost(0, 1))
    await limiter.drain()
    assert running(own_store, key) == 0


async def test_every_decision_is_counted_by_result_level_and_counter(
    store: AnyStore, make_limiter: MakeLimiter
) -> None:
    limiter = await make_limiter(store.url)
    key, limits = new_id(), Limits(requests_per_minute=2, tokens_per_minute=100)
    for tokens in (60, 60, 101, 40, 0, 0):
        with contextlib.suppress(LimitError):
            await limiter.take(new_id(), key, limits, tokens)

    def decisions(result: str, counter: str, level: str = "key") -> float:
        return limiter.metric("decisions_total", result=result, level=level, counter=counter)

    assert decisions("admitted", "", "") == 2
    assert decisions("refused", "tokens_per_minute") == 1
    assert decisions("refused", "requests_per_minute") == 2
    assert decisions("too_expensive", "tokens_per_minute") == 1
    assert limiter.metric("reserve_seconds_count") == 5
    assert limiter.metric("mode") == 0
