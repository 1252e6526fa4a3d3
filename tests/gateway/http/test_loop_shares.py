"""One organization's work on the event loop is held to its share; nobody else waits for it."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from gateway.http.loop_shares import BURST_S, NETWORK_BURST_S, SHARE, LoopShares, StrangerShares
from tests.virtual_time import in_virtual_time, now_s


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def waits(shares: LoopShares, organization_id: str) -> bool:
    turn = asyncio.ensure_future(shares.turn(organization_id))
    await asyncio.sleep(0)
    done = turn.done()
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    return not done


async def test_a_burst_is_free_then_the_organization_waits_and_others_do_not() -> None:
    clock = Clock()
    shares = LoopShares(clock)
    shares.spend("noisy", BURST_S * 0.99)
    assert not await waits(shares, "noisy")
    shares.spend("noisy", 0.01)
    assert await waits(shares, "noisy")
    assert not await waits(shares, "other")
    clock.now_s += 0.01 / SHARE
    assert not await waits(shares, "noisy")


@given(st.lists(st.tuples(st.floats(0, 0.05), st.floats(0, 1)), min_size=1, max_size=60))
def test_over_any_time_it_gets_its_share_and_a_burst_and_the_last_piece_of_work(
    steps: list[tuple[float, float]],
) -> None:
    clock = Clock()
    shares = LoopShares(clock)
    began_s, spent_s, longest_s = clock.now_s, 0.0, max(work_s for work_s, _ in steps)

    async def run() -> None:
        nonlocal spent_s
        for work_s, pause_s in steps:
            if not await waits(shares, "o"):
                shares.spend("o", work_s)
                spent_s += work_s
            clock.now_s += pause_s
            assert spent_s <= (clock.now_s - began_s) * SHARE + BURST_S + longest_s + 1e-6

    asyncio.run(run())


@in_virtual_time
async def test_those_who_wait_come_one_after_the_other_and_who_leaves_holds_up_nobody() -> None:
    shares, order = LoopShares(now_s), []
    shares.spend("o", BURST_S + 0.002)

    async def one(number: int) -> None:
        await shares.turn("o")
        shares.spend("o", 0.001)
        order.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert order == []
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [1, 2, 3]


async def test_what_is_even_again_is_forgotten() -> None:
    clock = Clock()
    shares = LoopShares(clock)
    for number in range(10_001):
        shares.spend(str(number), 0.001)
        clock.now_s += 0.1
    assert len(shares) < 10


async def test_a_network_of_strangers_waits_for_its_share_and_another_does_not() -> None:
    shares = StrangerShares(Clock())
    shares.spend("noisy", NETWORK_BURST_S + 0.001)
    noisy = asyncio.ensure_future(shares.turn("noisy"))
    await shares.turn("idle")
    await shares.turn("")
    assert not noisy.done()
    noisy.cancel()
    shares.spend("", 1e6)
    await shares.turn("")
    await shares.turn("idle")


async def test_a_client_without_a_key_that_leaves_delays_no_later_request() -> None:
    clock = Clock()
    shares = LoopShares(clock)
    for _ in range(2_000):
        asking = asyncio.ensure_future(shares.refused("noisy"))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    clock.now_s += 0.1
    others = [asyncio.ensure_future(shares.strangers.turn(network)) for network in ("noisy", "idle")]
    await asyncio.wait(others, timeout=0)
    await asyncio.sleep(0)
    assert all(turn.done() for turn in others)
    await asyncio.gather(*others)


async def test_refusals_are_said_at_the_pace_of_their_network() -> None:
    clock = Clock()
    shares = LoopShares(clock)
    asking = [asyncio.ensure_future(shares.refused("noisy")) for _ in range(1_000)]
    await asyncio.sleep(0)
    said = sum(turn.done() for turn in asking)
    for turn in asking:
        turn.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert NETWORK_BURST_S / 0.001 <= said <= NETWORK_BURST_S / 0.001 + 2
