"""The sweeper calls once for every wait that has lasted too long, and for no other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from gateway.serving.idle_timeout import IdleTimeouts, Wait
from tests.virtual_time import in_virtual_time


@pytest.fixture
def sweeper() -> IdleTimeouts:
    """Not started: tests tell it the time."""
    return IdleTimeouts()


def noting(calls: list[str], name: str) -> Callable[[], None]:
    return lambda: calls.append(name)


def test_only_waits_over_their_own_limit_are_reported_and_once(sweeper: IdleTimeouts) -> None:
    calls: list[str] = []
    for name, limit_s in (("short", 5.0), ("long", 50.0)):
        wait = Wait()
        wait.begin(limit_s, noting(calls, name))
        sweeper.add(wait)
    now_s = time.monotonic()
    sweeper.sweep(now_s + 4)
    assert calls == []
    sweeper.sweep(now_s + 6)
    assert calls == ["short"]
    sweeper.sweep(now_s + 7)
    assert calls == ["short"]
    sweeper.sweep(now_s + 51)
    assert calls == ["short", "long"]


def test_a_wait_that_ended_or_never_began_is_no_stall(sweeper: IdleTimeouts) -> None:
    calls: list[str] = []
    ended = Wait()
    ended.begin(5.0, noting(calls, "ended"))
    ended.end()
    for wait in (ended, Wait()):
        sweeper.add(wait)
    sweeper.sweep(time.monotonic() + 1_000)
    assert calls == []


def test_beginning_again_starts_the_clock_and_the_call_anew(sweeper: IdleTimeouts) -> None:
    calls: list[str] = []
    wait = Wait()
    sweeper.add(wait)
    wait.begin(5.0, noting(calls, "client"))
    sweeper.sweep(time.monotonic() + 6)
    wait.begin(50.0, noting(calls, "engine"))
    sweeper.sweep(time.monotonic() + 6)
    assert calls == ["client"]
    sweeper.sweep(time.monotonic() + 51)
    assert calls == ["client", "engine"]


def test_a_removed_wait_is_forgotten_even_in_the_middle_of_a_sweep(sweeper: IdleTimeouts) -> None:
    calls: list[str] = []
    waits = [Wait() for _ in range(4)]

    def stalled() -> None:
        calls.append("stalled")
        for wait in waits:
            sweeper.remove(wait)
            wait.end()

    for wait in waits:
        wait.begin(5.0, stalled)
        sweeper.add(wait)
    sweeper.sweep(time.monotonic() + 6)
    sweeper.sweep(time.monotonic() + 6)
    assert calls == ["stalled"]
    sweeper.remove(waits[0])


@in_virtual_time
async def test_it_sweeps_by_itself_until_it_is_stopped(sweeper: IdleTimeouts) -> None:
    stalled = asyncio.Event()
    wait = Wait()
    wait.begin(0.0, stalled.set)
    sweeper.add(wait)
    sweeper.task.start()
    await stalled.wait()
    assert "idle timeouts" in running()
    assert await sweeper.task.stop()
    assert "idle timeouts" not in running()
    assert not await sweeper.task.stop()


def running() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}
