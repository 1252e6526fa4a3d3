"""Bodies of one organization wait for room in its own line; whoever leaves gives back what it had."""

from __future__ import annotations

import asyncio
import contextlib

from hypothesis import given
from hypothesis import strategies as st

from gateway.serving.body_room import BodyRoom

LIMIT = 100


async def test_one_that_is_too_large_for_the_limit_comes_alone() -> None:
    room = BodyRoom(LIMIT)
    async with room.of("o", 10 * LIMIT):
        second = asyncio.ensure_future(room.of("o", 1).__aenter__())
        async with room.of("other", LIMIT):
            await asyncio.sleep(0)
            assert not second.done()
    await second


@given(st.lists(st.tuples(st.sampled_from(["take", "finish", "leave"]), st.integers(1, 60)), max_size=60))
def test_never_more_than_the_limit_first_come_first_served_and_nothing_is_left(steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        room = BodyRoom(LIMIT)
        inside: list[int] = []
        entered: list[int] = []
        done: dict[int, asyncio.Event] = {}
        sizes: dict[int, int] = {}
        tasks: dict[int, asyncio.Task[None]] = {}

        async def body(number: int) -> None:
            async with room.of("o", sizes[number]):
                inside.append(number)
                entered.append(number)
                try:
                    await done[number].wait()
                finally:
                    inside.remove(number)

        for number, (step, size) in enumerate(steps):
            if step == "take":
                sizes[number], done[number] = size, asyncio.Event()
                tasks[number] = asyncio.create_task(body(number))
            elif step == "finish" and inside:
                done[inside[size % len(inside)]].set()
            elif step == "leave" and tasks:
                tasks[sorted(tasks)[size % len(tasks)]].cancel()
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(inside) <= 1 or sum(sizes[one] for one in inside) <= LIMIT
            waiting = [one for one, task in tasks.items() if not task.done() and one not in inside]
            first = min(waiting, default=None)
            if first is not None:
                assert inside
                assert sum(sizes[one] for one in inside) + sizes[first] > LIMIT, "the first in line is kept waiting"
        assert entered == sorted(entered)
        for task in tasks.values():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert not room._taken
        assert not room._waiting

    asyncio.run(run())
