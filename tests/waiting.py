"""One way to wait for what another task, thread or process brings about."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

Value = TypeVar("Value")

GUARD_S = 150.0
"""A guard, not a measure: a condition that still does not hold is a failure. Generous, for a busy machine."""
START_S = 270.0
"""The same for the start of a process or a deployment. pytest's limit of a test is above the sum of both."""
FIRST_PAUSE_S, LONGEST_PAUSE_S, GROWTH = 0.002, 0.05, 1.5


@overload
async def eventually(condition: Callable[[], Awaitable[Value | None]], guard_s: float = GUARD_S) -> Value: ...
@overload
async def eventually(condition: Callable[[], Value | None], guard_s: float = GUARD_S) -> Value: ...
async def eventually(condition: Callable[[], Any], guard_s: float = GUARD_S) -> Any:
    """The first true value of the condition, which may be a coroutine function.

    Raises AssertionError after `guard_s` seconds, with the condition's last value.
    """
    deadline_s, pause_s = time.monotonic() + guard_s, FIRST_PAUSE_S
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline_s, f"not within {guard_s:g} s: {_named(condition)}, last {value!r}"
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * GROWTH, LONGEST_PAUSE_S)


def eventually_blocking(condition: Callable[[], Value], guard_s: float = GUARD_S) -> Value:
    """The same for tests without an event loop; blocks the thread."""
    deadline_s, pause_s = time.monotonic() + guard_s, FIRST_PAUSE_S
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"not within {guard_s:g} s: {_named(condition)}, last {value!r}"
        time.sleep(pause_s)
        pause_s = min(pause_s * GROWTH, LONGEST_PAUSE_S)
    return value


def _named(condition: Callable[[], object]) -> str:
    code = getattr(condition, "__code__", None)
    return repr(condition) if code is None else f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
