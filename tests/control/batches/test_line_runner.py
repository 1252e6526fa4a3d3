"""Lines of a batch in flight, without a gateway."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from control.batches.claims import Result
from control.batches.line import Line
from control.batches.line_runner import HELD_BYTES, LineRunner, Stopped
from control.batches.pace import FIRST

LINES = 40


async def test_large_results_lower_the_number_of_lines_in_flight() -> None:
    """Fault: 128 answers with vectors of 10 MB each were held at once, by the worker of all tenants."""
    content, running, most = bytes(HELD_BYTES // 4), 0, [0, 0]
    stored: list[int] = []

    async def ask(number: int, _line: Line) -> Result:
        nonlocal running
        running += 1
        most[bool(stored)] = max(most[bool(stored)], running)
        await asyncio.sleep(0)
        running -= 1
        return Result(number, ok=True, content=content)

    async def store(results: list[Result]) -> None:
        stored.extend(each.line for each in results)

    async def turn_over() -> bool:
        return False

    lines = ((number, cast(Any, None)) for number in range(LINES))
    runner = LineRunner(lines, ask, store, lambda _reason: None, turn_over)
    assert await runner.run(asyncio.Event()) is Stopped.DONE
    assert sorted(stored) == list(range(LINES))
    assert most == [FIRST, 4]
