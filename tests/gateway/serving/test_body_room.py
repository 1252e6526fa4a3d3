"""Bodies of one organization wait for room in its own line; whoever leaves gives back what it had."""

from __future__ import annotations

import asyncio
import contextlib

from hypothesis import given
from hypothesis import strategies as st

from gateway.serving.body_room import Body, BodyRoom

LIMIT = 100


async def turned() -> None:
    """Let the other tasks run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_that_is_too_large_for_the_limit_comes_alone() -> None:
    room = BodyRoom(LIMIT)
    async with room.of("o", 10 * LIMIT):
        second = asyncio.ensure_future(room.of("o", 1).__aenter__())
        async with room.of("other", LIMIT):
            await asyncio.sleep(0)
            assert not second.done()
    await second


async def test_a_body_without_a_length_counts_for_its_received_bytes() -> None:
    """Eight slow ones took all the room of their organization with their first bytes."""
    room = BodyRoom(LIMIT)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(8):
            slow = await stack.enter_async_context(room.of("o"))
            await slow.hold(1)
        async with room.of("o", LIMIT - 8):
            pass


async def test_of_several_growing_bodies_the_oldest_goes_on_and_none_waits_forever() -> None:
    room = BodyRoom(LIMIT)
    order: list[int] = []

    async def grow(number: int) -> None:
        async with room.of("o") as body:
            for size_bytes in range(10, 100, 10):
                await body.hold(size_bytes)
                await asyncio.sleep(0)
            order.append(number)

    async with asyncio.timeout(10):
        await asyncio.gather(*(grow(number) for number in range(9)))
    assert sorted(order) == list(range(9))
    assert order[0] == 0
    assert not room._inside
    assert not room._waiting


@given(
    st.lists(st.tuples(st.sampled_from(["take", "grow", "more", "finish", "leave"]), st.integers(1, 60)), max_size=60)
)
def test_never_more_than_the_limit_first_come_first_served_and_nothing_is_left(steps: list[tuple[str, int]]) -> None:
    """Of those that grow only the oldest may go beyond it."""

    async def run() -> None:
        room = BodyRoom(LIMIT)
        inside: dict[int, Body] = {}
        entered: list[int] = []
        done: dict[int, asyncio.Event] = {}
        wanted: dict[int, int] = {}
        asked: dict[int, asyncio.Event] = {}
        grows: set[int] = set()
        tasks: dict[int, asyncio.Task[None]] = {}

        async def body(number: int) -> None:
            async with room.of("o", 0 if number in grows else wanted[number]) as one:
                if number in grows:
                    await one.hold(wanted[number])
                inside[number] = one
                entered.append(number)
                try:
                    while not done[number].is_set():
                        await asked[number].wait()
                        asked[number].clear()
                        await one.hold(wanted[number])
                finally:
                    del inside[number]

        for number, (step, size) in enumerate(steps):
            if step in ("take", "grow"):
                wanted[number], done[number], asked[number] = size, asyncio.Event(), asyncio.Event()
                if step == "grow":
                    grows.add(number)
                tasks[number] = asyncio.create_task(body(number))
            elif step == "more" and (growing := [one for one in inside if one in grows]):
                chosen = growing[size % len(growing)]
                wanted[chosen] += size
                asked[chosen].set()
            elif step == "finish" and inside:
                chosen = list(inside)[size % len(inside)]
                done[chosen].set()
                asked[chosen].set()
            elif step == "leave" and tasks:
                tasks[sorted(tasks)[size % len(tasks)]].cancel()
            await turned()
            held = {one: inside[one].size_bytes for one in inside}
            oldest = min(inside, key=lambda one: list(room._inside["o"]).index(inside[one]), default=None)
            assert len(held) <= 1 or sum(held.values()) - (held[oldest] if oldest in grows else 0) <= LIMIT
            if oldest is not None:
                assert held[oldest] == wanted[oldest], "the oldest never waits"
            waiting = [one for one, task in tasks.items() if not task.done() and one not in inside]
            if waiting:
                assert inside
        assert [one for one in entered if one not in grows] == sorted(one for one in entered if one not in grows)
        for task in tasks.values():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert not room._inside
        assert not room._waiting

    asyncio.run(run())
