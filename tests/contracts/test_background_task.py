"""Background work ends with its owner, outlives its own failures, and never takes anybody with it."""

from __future__ import annotations

import asyncio

import pytest

from contracts.background_task import BackgroundTask
from tests.virtual_time import in_virtual_time


class Work:
    """Runs until cancelled; `faults` runs before fail at once."""

    def __init__(self, faults: int = 0) -> None:
        self.faults = faults
        self.begun = 0
        self.ended = 0
        self.running = asyncio.Event()

    async def run(self) -> None:
        self.begun += 1
        if self.begun <= self.faults:
            raise RuntimeError("a defect")
        self.running.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # cleaning up may wait, too
            self.ended += 1


def named(name: str) -> list[asyncio.Task[None]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == name]


@in_virtual_time
async def test_it_runs_from_start_to_stop() -> None:
    work = Work()
    task = BackgroundTask("some work", work.run)
    task.start()
    await work.running.wait()
    assert len(named("some work")) == 1
    await task.stop()
    assert (work.begun, work.ended, named("some work")) == (1, 1, [])


@in_virtual_time
async def test_cancelling_ends_the_run_without_waiting_for_it() -> None:
    work = Work()
    task = BackgroundTask("some work", work.run)
    task.cancel()
    task.start()
    await work.running.wait()
    task.cancel()
    assert len(named("some work")) == 1
    assert await task.stop()
    assert (work.ended, named("some work")) == (1, [])


@in_virtual_time
async def test_starting_and_stopping_twice_change_nothing() -> None:
    work = Work()
    task = BackgroundTask("some work", work.run)
    assert not await task.stop()
    task.start()
    task.start()
    await work.running.wait()
    assert await task.stop()
    assert not await task.stop()
    assert work.begun == 1


@in_virtual_time
async def test_it_can_be_started_again() -> None:
    work = Work()
    for _ in range(2):
        async with BackgroundTask("some work", work.run):
            await work.running.wait()
            work.running.clear()
    assert (work.begun, work.ended) == (2, 2)


@in_virtual_time
async def test_a_failure_is_logged_and_the_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(faults=3)
    async with BackgroundTask("some work", work.run):
        await work.running.wait()
    assert work.begun == 4
    failures = [record for record in caplog.records if record.exc_info]
    assert len(failures) == 3
    assert all(record.getMessage().startswith("some work failed; restarting in ") for record in failures)


@in_virtual_time
async def test_stopping_between_two_failures_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(faults=1)
    task = BackgroundTask("some work", work.run)
    task.start()
    while not caplog.records:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await task.stop()
    assert work.begun == 1


@in_virtual_time
async def test_work_that_returns_is_over() -> None:
    done = asyncio.Event()

    async def run() -> None:
        done.set()

    task = BackgroundTask("some work", run)
    task.start()
    await done.wait()
    while named("some work"):  # noqa: ASYNC110
        await asyncio.sleep(0)
    await task.stop()


@pytest.mark.parametrize("kind", ["function", "coroutine function"])
@pytest.mark.parametrize("at_once", [True, False])
@in_virtual_time
async def test_steps_are_taken_again_and_again(kind: str, at_once: bool) -> None:
    taken, enough = 0, asyncio.Event()

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken == 3:
            enough.set()

    async def slow_step() -> None:
        await asyncio.sleep(0)
        step()

    task = BackgroundTask.every(60, step if kind == "function" else slow_step, "steps", at_once=at_once)
    async with task:
        await enough.wait()


@pytest.mark.parametrize("at_once", [True, False])
@in_virtual_time
async def test_the_first_step_waits_unless_told_otherwise(at_once: bool) -> None:
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1

    async with BackgroundTask.every(3_600, step, "steps", at_once=at_once):
        for _ in range(5):
            await asyncio.sleep(0)
    assert taken == at_once


@in_virtual_time
async def test_a_step_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    taken, again = 0, asyncio.Event()

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken == 1:
            raise OSError("a disk")
        again.set()

    async with BackgroundTask.every(60, step, "steps"):
        await again.wait()
    assert [(record.getMessage(), record.exc_info is not None) for record in caplog.records] == [
        ("steps failed; retrying in 60 s", True)
    ]


@in_virtual_time
async def test_somebody_else_s_cancellation_ends_no_work() -> None:
    calls, third = 0, asyncio.Event()

    async def step() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            third.set()
        cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        await cancelled

    for task in (BackgroundTask("a run", step), BackgroundTask.every(60, step, "a step")):
        calls = 0
        third.clear()
        async with task:
            await third.wait()
    assert named("a run") == named("a step") == []
