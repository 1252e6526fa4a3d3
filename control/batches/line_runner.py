"""Runs the lines of one batch that have no result yet, until all have, or the batch is to stop.

One loop starts lines, as many as the pace allows, and stores what has ended since it last did, in one transaction.
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

PAUSE_S = 0.5
"""Pause after a refusal without a `Retry-After`, and after a failure."""

Ask = Callable[[int, Line], Awaitable[Result]]
Store = Callable[[list[Result]], Awaitable[None]]


class Stopped(StrEnum):
    """Why it returned."""

    DONE = "done"
    """Each line has a result."""
    ENDED = "ended"
    """The window is over, or the batch is cancelled: lines in flight were given up."""
    TURN_OVER = "turn_over"
    """Other batches wait. Lines in flight have ended."""


class _Try(msgspec.Struct, frozen=True):
    """A line to request. failed: how often it has."""

    number: int
    line: Line
    failed: int = 0


class LineRunner:
    """lines: those without a result. ask: requests one line. store: stores results. refresh: called with the reason
    when the gateway refuses the token; the next requests have another one. turn_over: asked now and then whether
    another batch's turn has come."""

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
        self._again: deque[_Try] = deque()
        self._running: dict[asyncio.Task[Result], _Try] = {}
        self._draining = False

    async def run(self, ended: asyncio.Event) -> Stopped:
        """ended: set when the window is over or the batch is cancelled. Raises what `store` raises."""
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
        """Start as many lines as may be in flight. Returns the seconds until more may start; None: none may by time
        alone."""
        if self._draining:
            return None
        while len(self._running) < self._pace.limit:
            if (pause_s := self._pace.resume_s - self._clock()) > 0:
                return pause_s if self._left() else None
            if (found := self._next()) is None:
                return None
            self._running[asyncio.create_task(self._asked(found))] = found
        return None

    async def _asked(self, found: _Try) -> Result:
        return await self._ask(found.number, found.line)

    def _next(self) -> _Try | None:
        return self._again.popleft() if self._again else next(self._lines, None)

    def _left(self) -> bool:
        """Whether a line waits to start."""
        if not self._again and (found := next(self._lines, None)) is not None:
            self._again.append(found)
        return bool(self._again)

    def _ended(self) -> list[Result]:
        """Results of the lines that have ended; lines to request again wait."""
        results = []
        for task in [task for task in self._running if task.done()]:
            found = self._running.pop(task)
            try:
                results.append(task.result())
                self._pace.served()
            except RetryLater as full:
                self._pace.refused(self._clock(), full.retry_after_s or PAUSE_S)
                self._again.append(found)
            except GatewayUnreachable:
                self._pace.refused(self._clock(), PAUSE_S)
                self._again.append(found)
            except TokenRefused as refusal:
                self._refresh(str(refusal))
                self._pace.refused(self._clock(), PAUSE_S)
                self._again.append(found)
            except Failed as failure:
                if found.failed + 1 == MAX_TRIES:
                    results.append(failure.result)
                    continue
                self._pace.refused(self._clock(), PAUSE_S)
                self._again.append(msgspec.structs.replace(found, failed=found.failed + 1))
        return results
