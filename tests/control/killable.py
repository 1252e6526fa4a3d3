"""Workers that stand still between two steps of the database, as a killed process does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Protocol

GUARD_S = 60.0
"""Nothing takes this long unless a test fails."""


class Worker(Protocol):
    """Runs until it is stopped."""

    async def run(self, due: asyncio.Event, stop: asyncio.Event) -> None: ...


class Steps(Protocol):
    """Makes each step of the database by one call."""

    async def _once(self, work: Any, *values: Any) -> Any: ...


class Killable:
    """Put before a worker: it stands still for ever before or after the step of the database that is its last."""

    uncounted: tuple[Any, ...] = ()
    """Steps that it makes by the clock."""
    steps = 0
    last_step: float = float("inf")
    before = True

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self.dead = asyncio.Event()

    async def _once(self, work: Any, *values: Any) -> Any:
        worker: Steps = super()  # type: ignore[assignment]
        if work in self.uncounted:
            return await worker._once(work, *values)
        self.steps += 1
        dying = self.steps >= self.last_step
        if dying and (self.before or self.dead.is_set()):
            await self._die()
        done = await worker._once(work, *values)
        if dying:
            await self._die()
        return done

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[asyncio.Event]:
    """While it works; the event has it look again."""
    due, stop = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(worker.run(due, stop))
    try:
        yield due
    finally:
        stop.set()
        due.set()
        await asyncio.wait_for(task, GUARD_S)
