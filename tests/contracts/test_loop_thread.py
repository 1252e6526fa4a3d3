from __future__ import annotations

import asyncio
import threading

from contracts.loop_thread import LoopThread, stop_together
from tests.waiting import GUARD_S


def test_threads_that_stop_together_do_not_wait_for_one_another() -> None:
    """Fault: a worker told its threads one after the other. A silent receiver of webhooks used up the time in which
    batches return their leases, and the worker was killed in the middle of them."""
    told, found = threading.Event(), list[bool]()

    async def slow(_due: asyncio.Event, stop: asyncio.Event) -> None:
        await stop.wait()
        found.append(await asyncio.to_thread(told.wait, GUARD_S))

    async def quick(_due: asyncio.Event, stop: asyncio.Event) -> None:
        await stop.wait()
        told.set()

    threads = [LoopThread("slow", slow, 2 * GUARD_S), LoopThread("quick", quick, 2 * GUARD_S)]
    for each in threads:
        each.wake()
    stop_together(threads)
    assert found == [True]
    stop_together(threads)
