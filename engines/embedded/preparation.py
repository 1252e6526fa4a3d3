"""Requests in preparation: tokenized, their grammars compiled. They can be aborted by id like running ones, and have
used nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from contracts.errors import Draining, Overloaded
from engines.embedded.history import RequestUsage, UsageHistory

ResultT = TypeVar("ResultT")
UNUSED = RequestUsage(0, 0, 0, 0)
OVERTAKEN_S = 5.0
"""Longest time by which a request may trail its own abort. They arrive on two connections, and a busy process reads the
shorter one first."""
MAX_OVERTAKEN = 1_024


class Preparation:
    """Lives on the event loop."""

    def __init__(self, history: UsageHistory) -> None:
        """history: records that a request which ended here used nothing."""
        self._history = history
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._overtaken: dict[str, float] = {}
        """Ids that were aborted before any part of them was read, and the time until which that counts; in this
        order."""
        self._closed = False

    async def run(
        self,
        rid: str,
        work: Coroutine[Any, Any, ResultT],
        on_leave: Callable[[Callable[[], object]], asyncio.Task[None]],
    ) -> ResultT:
        """The result of `work`. on_leave: calls back when the client leaves, until its task is cancelled.

        Raises the errors of `work`, Overloaded when the client's leaving, `abort` or `abort_ahead` ends it first, and
        Draining once closed.
        """
        task = asyncio.create_task(work)
        self._tasks[task] = rid
        overtaken = self._overtaken.pop(rid, 0.0) > asyncio.get_running_loop().time()
        if self._closed or overtaken:
            task.cancel()
        watch = on_leave(task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            self._history.put(rid, UNUSED)
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            if self._closed:
                raise Draining("The engine is shutting down.", retry_after_s=1.0) from None
            raise Overloaded("The request was aborted before it began.") from None
        finally:
            watch.cancel()
            del self._tasks[task]

    def abort(self, rid: str, *, prefix: bool = False) -> bool:
        """End the preparation of a request; with `prefix`, of every request whose id starts so. False: none was in
        preparation."""
        meant = [task for task, own in self._tasks.items() if own == rid or (prefix and own.startswith(rid))]
        for task in meant:
            task.cancel()
        return bool(meant)

    def abort_ahead(self, rid: str) -> None:
        """End a request of exactly this id if it arrives within `OVERTAKEN_S`."""
        self._overtaken.pop(rid, None)
        self._overtaken[rid] = asyncio.get_running_loop().time() + OVERTAKEN_S
        while len(self._overtaken) > MAX_OVERTAKEN:
            del self._overtaken[next(iter(self._overtaken))]

    def close(self) -> None:
        """End everything: nothing in preparation would be accepted any more."""
        self._closed = True
        self.abort("", prefix=True)
