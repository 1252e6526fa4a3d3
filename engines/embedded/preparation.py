"""Requests on their way to the engine: tokenized, their grammars compiled. They end by id like those that it has, and
have used nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from contracts.errors import Draining, Overloaded
from engines.embedded.history import RequestUsage, UsageHistory

ResultT = TypeVar("ResultT")
UNUSED = RequestUsage(0, 0, 0, 0)
OVERTAKEN_S = 5.0
"""How long a request may be behind its own abort. They come by two connections, and a busy process reads the shorter
one first."""
MOST_OVERTAKEN = 1_024


class Preparation:
    """Lives on the event loop."""

    def __init__(self, history: UsageHistory) -> None:
        """history: told that a request which ended here used nothing."""
        self._history = history
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._overtaken: dict[str, float] = {}
        """Ids that were aborted before anything of them was read, and until when that counts; in this order."""
        self._closed = False

    async def run(
        self,
        rid: str,
        work: Coroutine[Any, Any, ResultT],
        on_leave: Callable[[Callable[[], object]], asyncio.Task[None]],
    ) -> ResultT:
        """What `work` returns. on_leave: calls back when the client leaves, until its task is cancelled.

        Raises what `work` raises, Overloaded when it is ended before, by the client's leaving, `abort` or
        `abort_ahead`, and Draining once closed.
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
        """End what is prepared for a request; with `prefix`, for every request whose id starts so. False: none is."""
        meant = [task for task, own in self._tasks.items() if own == rid or (prefix and own.startswith(rid))]
        for task in meant:
            task.cancel()
        return bool(meant)

    def abort_ahead(self, rid: str) -> None:
        """End a request of just this id if it comes within `OVERTAKEN_S`."""
        self._overtaken.pop(rid, None)
        self._overtaken[rid] = asyncio.get_running_loop().time() + OVERTAKEN_S
        while len(self._overtaken) > MOST_OVERTAKEN:
            del self._overtaken[next(iter(self._overtaken))]

    def close(self) -> None:
        """End everything: nothing that is prepared would be taken any more."""
        self._closed = True
        self.abort("", prefix=True)
