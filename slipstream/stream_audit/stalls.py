"""Records when this process does not run: data that arrives meanwhile is seen late, and all at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from slipstream.stream_audit.measured import Stall

PERIOD_S = 0.002
NOTED_S = 0.002
"""A wait that ends so many seconds late is a stall."""


@contextlib.asynccontextmanager
async def stalls_noted() -> AsyncIterator[list[Stall]]:
    """The stalls during the block; the list grows within it."""
    stalls: list[Stall] = []
    task = asyncio.create_task(_note(stalls))
    try:
        yield stalls
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _note(stalls: list[Stall]) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        due_s = clock() + PERIOD_S
        await asyncio.sleep(PERIOD_S)
        now_s = clock()
        if now_s - due_s > NOTED_S:
            stalls.append(Stall(due_s, now_s))
