"""Tasks that a module of tests leaves on the loop, which all tests of a process share.

The garbage collector may destroy such a task within any later test, whose verdict then depends on what another test
left: once the loop's exception handler of one test reported a task of another inside `ast.parse`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.waiting import eventually

ALLOWED = frozenset(
    {
        "infra.local.child.Child._watch",
        *(f"tests.fakes.slow_link.{name}" for name in ("SlowLink._take", "SlowLink._relay", "_deliver", "_pass_on")),
    }
)
"""Coroutines of servers, and of links to them, that a fixture keeps for several modules."""
SETTLING_S = 20.0
"""A guard, not a measure: connections close and cancelled tasks end within a few turns of the loop."""


def new_tasks(before: set[asyncio.Task[Any]]) -> list[str]:
    """The coroutines of tasks that were not pending then and are now; without the caller's, and without `ALLOWED`."""
    new = asyncio.all_tasks() - before - {asyncio.current_task()}
    return sorted(name for name in map(_name_of, new) if name not in ALLOWED)


def _name_of(task: asyncio.Task[Any]) -> str:
    """The module and the name of its coroutine."""
    coroutine = task.get_coro()
    frame = getattr(coroutine, "cr_frame", None)
    name = getattr(coroutine, "__qualname__", repr(coroutine))
    return name if frame is None else f"{frame.f_globals['__name__']}.{name}"


async def require_no_new_tasks(before: set[asyncio.Task[Any]]) -> None:
    """Raises AssertionError with the coroutines of tasks that do not end, and where the loop has a handler for
    exceptions, which also belongs to one test."""
    try:
        await eventually(lambda: not new_tasks(before), SETTLING_S)
    except AssertionError:
        raise AssertionError(
            f"tasks are left pending: {', '.join(new_tasks(before))}; let the test that started them end them"
        ) from None
    assert asyncio.get_running_loop().get_exception_handler() is None, (
        "the loop keeps a test's exception handler; let the test set it back to None"
    )
