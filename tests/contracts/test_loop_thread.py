from __future__ import annotations

import asyncio
import threading

import pytest

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


def test_threads_that_do_not_end_share_the_time_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: each had its whole time, one after the other, and the worker was killed."""
    now_s, waited_s = [0.0], list[float]()

    async def work(_due: asyncio.Event, stop: asyncio.Event) -> None:
        await stop.wait()

    def join(_thread: threading.Thread, timeout: float) -> None:
        waited_s.append(timeout)
        now_s[0] += timeout

    threads = [LoopThread(f"stuck {number}", work, 5.0) for number in range(3)]
    for each in threads:
        each.wake()
    with monkeypatch.context() as patch:
        patch.setattr("contracts.loop_thread.monotonic", lambda: now_s[0], raising=False)
        patch.setattr(threading.Thread, "join", join)
        stop_together(threads)
    assert waited_s == [5.0, 0.0, 0.0]
