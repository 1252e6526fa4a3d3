"""A module of tests that leaves a task pending fails."""

from __future__ import annotations

import asyncio

import pytest

from tests import pending_tasks
from tests.pending_tasks import new_tasks, require_no_new_tasks


async def test_a_task_that_is_left_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_tasks, "SETTLING_S", 0.0)
    before, go_on = asyncio.all_tasks(), asyncio.Event()

    async def forgotten() -> None:
        await go_on.wait()

    task = asyncio.create_task(forgotten())
    with pytest.raises(AssertionError, match=r"left pending: \S+forgotten; let the test"):
        await require_no_new_tasks(before)
    go_on.set()
    await task
    await require_no_new_tasks(before)


async def test_a_server_of_a_fixture_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_tasks, "ALLOWED", {"asyncio.locks.Event.wait"})
    before, stopped = asyncio.all_tasks(), asyncio.Event()
    task = asyncio.create_task(stopped.wait())
    assert new_tasks(before) == []
    stopped.set()
    await task


async def test_a_coroutine_of_another_module_with_a_servers_name_is_left() -> None:
    before, go_on = asyncio.all_tasks(), asyncio.Event()

    async def forgotten() -> None:
        await go_on.wait()

    forgotten.__qualname__ = "_deliver"
    task = asyncio.create_task(forgotten())
    assert new_tasks(before) == [f"{__name__}._deliver"]
    go_on.set()
    await task


async def test_a_handler_of_the_loops_exceptions_that_is_left_is_a_failure() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, __: None)
    try:
        with pytest.raises(AssertionError, match="exception handler"):
            await require_no_new_tasks(asyncio.all_tasks())
    finally:
        loop.set_exception_handler(None)
