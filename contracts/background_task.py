"""Background work that runs from a start to a stop and survives its own failures."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Self

from contracts.backoff import Backoff

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0

logger = logging.getLogger(__name__)


class BackgroundTask:
    """Runs a coroutine function on the event loop that starts it; also an asynchronous context manager.

    A run that returns ends the task. A run that raises is logged and restarted, because background work has no caller
    that could receive the error. The pauses before restarts grow while runs keep failing soon.
    """

    def __init__(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """name: the name of the asyncio task, also in log lines."""
        self._name = name
        self._run = run
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def every(cls, period_s: float, step: Callable[[], object], name: str, *, at_once: bool = False) -> Self:
        """Calls `step`, a function or a coroutine function, with pauses of `period_s` seconds between calls.

        at_once: the first call comes before the first pause instead of after it. A call that raises is logged; the next
        call follows after the usual pause.
        """

        async def run() -> None:
            if not at_once:
                await asyncio.sleep(period_s)
            while True:
                try:
                    result = step()
                    if inspect.isawaitable(result):
                        await result
                except (Exception, asyncio.CancelledError) as error:
                    _require_failure(error)
                    logger.exception("%s failed; retrying in %g s", name, period_s)
                await asyncio.sleep(period_s)

        return cls(name, run)

    def start(self) -> None:
        """Start on the running loop. Does nothing while a run is in progress."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_running(), name=self._name)

    def cancel(self) -> None:
        """Cancel the run without waiting for its end. Does nothing if no run is in progress."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> bool:
        """Cancel the run and return once it has ended; False if none was started. Never raises the run's exceptions."""
        task, self._task = self._task, None
        if task is None:
            return False
        task.cancel()
        await asyncio.wait([task])
        return True

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _keep_running(self) -> None:
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, stable_after_s=LONGEST_PAUSE_S)
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            try:
                return await self._run()
            except (Exception, asyncio.CancelledError) as error:
                _require_failure(error)
                pause_s = backoff.next_s(loop.time() - began_s)
                logger.exception("%s failed; restarting in %.1f s", self._name, pause_s)
            await asyncio.sleep(pause_s)


def _require_failure(error: BaseException) -> None:
    """Raise `error` if it cancels this task itself rather than something that the task awaited."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
        raise error
