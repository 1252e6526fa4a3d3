"""Tracks requests while they are tokenized and their grammars compiled. They can be aborted by id like running ones,
and have used no tokens.
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
"""Longest time by which a request may arrive after its own abort. They arrive on two connections, and a busy process
reads the shorter message first."""
MAX_OVERTAKEN = 1_024


class Preparation:
    """The requests in preparation. The class runs on the event loop."""

    def __init__(self, history: UsageHistory) -> None:
        """history: records that requests that end in preparation used nothing."""
        self._history = history
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._overtaken: dict[str, float] = {}
        """Ids that were aborted before the request arrived, with the time until which the abort applies, in that
        order."""
        self._closed = False

    async def run(
        self,
        rid: str,
        work: Coroutine[Any, Any, ResultT],
        on_leave: Callable[[Callable[[], object]], asyncio.Task[None]],
    ) -> ResultT:
        """The result of `work`. on_leave: calls back when the client disconnects, until its task is cancelled.

        Raises the errors of `work`, Overloaded if a disconnect, `abort` or `abort_ahead` ends it first, and Draining
        once closed.
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
        """End the preparation of a request; with `prefix`, of every request whose id starts with `rid`. Returns False
        if none was in preparation."""
        matching = [task for task, own in self._tasks.items() if own == rid or (prefix and own.startswith(rid))]
        for task in matching:
            task.cancel()
        return bool(matching)

    def abort_ahead(self, rid: str) -> None:
        """End a request of exactly this id if it arrives within `OVERTAKEN_S`."""
        self._overtaken.pop(rid, None)
        self._overtaken[rid] = asyncio.get_running_loop().time() + OVERTAKEN_S
        while len(self._overtaken) > MAX_OVERTAKEN:
            del self._overtaken[next(iter(self._overtaken))]

    def close(self) -> None:
        """End all preparation, because the engine no longer accepts requests."""
        self._closed = True
        self.abort("", prefix=True)
