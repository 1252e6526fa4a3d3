"""Runs the lines of one batch that have no result yet, until all have one or the batch must stop.

One loop starts as many lines as the pace allows, and stores all new results in one transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from enum import StrEnum

import msgspec

from control.batches.asking import Failed
from control.batches.claims import Result
from control.batches.line import Line
from control.batches.pace import Pace
from control.deferred.gateway_client import MAX_TRIES, GatewayUnreachable, RetryLater, TokenRefused

HELD_BYTES = 32 * 1024 * 1024
"""Bound of the results of lines in flight, if they are as large as the largest so far. Vectors of one line may have
10 MB."""
PAUSE_S = 0.5
"""Pause after a refusal without a `Retry-After`, and after a failure."""

Ask = Callable[[int, Line], Awaitable[Result]]
Store = Callable[[list[Result]], Awaitable[None]]


class Stopped(StrEnum):
    """The reason why `LineRunner.run` returned."""

    DONE = "done"
    """Each line has a result."""
    ENDED = "ended"
    """The window has ended or the batch was cancelled. Lines in flight were abandoned."""
    TURN_OVER = "turn_over"
    """Another batch waits. Lines in flight have ended."""


class _Try(msgspec.Struct, frozen=True):
    """A line to send. failed: how often it has failed."""

    number: int
    line: Line
    failed: int = 0


class LineRunner:
    """lines: the lines without a result. ask: sends one line. store: stores results. refresh: replaces the token, and
    is called with the reason when the gateway refuses it. turn_over: whether it is another batch's turn; called
    repeatedly."""

    def __init__(
        self,
        lines: Iterator[tuple[int, Line]],
        ask: Ask,
        store: Store,
        refresh: Callable[[str], None],
        turn_over: Callable[[], Awaitable[bool]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lines = (_Try(number, line) for number, line in lines)
        self._ask = ask
        self._store = store
        self._refresh = refresh
        self._turn_over = turn_over
        self._clock = clock
        self._pace = Pace()
        self._waiting: deque[_Try] = deque()
        self._running: dict[asyncio.Task[Result], _Try] = {}
        self._draining = False
        self._largest_bytes = 1

    async def run(self, ended: asyncio.Event) -> Stopped:
        """Run the lines. ended: set when the window ends or the batch is cancelled. Raises the errors of `store`."""
        ending = asyncio.create_task(ended.wait())
        try:
            while not ended.is_set():
                self._draining = self._draining or await self._turn_over()
                wait_s = self._start()
                if not self._running and wait_s is None:
                    return Stopped.TURN_OVER if self._draining and self._left() else Stopped.DONE
                await asyncio.wait({*self._running, ending}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if results := self._ended():
                    await self._store(results)
            while results := self._ended():
                await self._store(results)
            return Stopped.ENDED
        finally:
            tasks = {*self._running, ending}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self) -> float | None:
        """Start as many lines as may be in flight. Returns the seconds until more may start; None if they wait for
        other events."""
        if self._draining:
            return None
        most = min(self._pace.limit, max(HELD_BYTES // self._largest_bytes, 1))
        while len(self._running) < most:
            if (pause_s := self._pace.resume_s - self._clock()) > 0:
                return pause_s if self._left() else None
            if (attempt := self._next()) is None:
                return None
            self._running[asyncio.create_task(self._asked(attempt))] = attempt
        return None

    async def _asked(self, attempt: _Try) -> Result:
        return await self._ask(attempt.number, attempt.line)

    def _next(self) -> _Try | None:
        return self._waiting.popleft() if self._waiting else next(self._lines, None)

    def _left(self) -> bool:
        """Whether a line waits to start."""
        if not self._waiting and (attempt := next(self._lines, None)) is not None:
            self._waiting.append(attempt)
        return bool(self._waiting)

    def _ended(self) -> list[Result]:
        """Collect the results of lines that have ended, and queue lines for a retry."""
        results = []
        for task in [task for task in self._running if task.done()]:
            attempt = self._running.pop(task)
            try:
                results.append(task.result())
                self._largest_bytes = max(self._largest_bytes, len(results[-1].content))
                self._pace.served()
            except RetryLater as full:
                self._pace.refused(self._clock(), full.retry_after_s or PAUSE_S)
                self._waiting.append(attempt)
            except GatewayUnreachable:
                self._pace.refused(self._clock(), PAUSE_S)
                self._waiting.append(attempt)
            except TokenRefused as refusal:
                self._refresh(str(refusal))
                self._pace.refused(self._clock(), PAUSE_S)
                self._waiting.append(attempt)
            except Failed as failure:
                if attempt.failed + 1 == MAX_TRIES:
                    results.append(failure.result)
                    continue
                self._pace.refused(self._clock(), PAUSE_S)
                self._waiting.append(msgspec.structs.replace(attempt, failed=attempt.failed + 1))
        return results
