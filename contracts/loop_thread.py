"""An event loop in a thread of its own, for work that must not block its caller."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Protocol

_log = logging.getLogger(__name__)


class LoopThread:
    """A thread with an event loop, which starts at the first `wake` and restarts at the next one if it has ended.

    work: works whenever its first event is set, until its second event is. join_s: time that `stop` waits for it.
    """

    def __init__(
        self, name: str, work: Callable[[asyncio.Event, asyncio.Event], Awaitable[None]], join_s: float
    ) -> None:
        self._name = name
        self._work = work
        self._join_s = join_s
        self._thread: threading.Thread | None = None
        self._begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._due: asyncio.Event
        self._stop: asyncio.Event

    def wake(self) -> None:
        """Signal that work may be due. Returns at once."""
        if self._thread is None or not self._thread.is_alive():
            self._begun.clear()
            self._thread = threading.Thread(target=self._live, name=self._name, daemon=True)
            self._thread.start()
            self._begun.wait()
        self._tell(lambda: self._due.set())

    def stop(self, spent_s: float = 0.0) -> None:
        """Start no more work and end the thread. Idempotent. spent_s: time since `begin_stop`."""
        self.begin_stop()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(max(0.0, self._join_s - spent_s))

    def begin_stop(self) -> None:
        """Start no more work, and return at once. Idempotent."""
        if self._thread is not None and self._thread.is_alive():
            self._tell(lambda: self._stop.set())
            self._tell(lambda: self._due.set())

    def _tell(self, callback: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the thread has just ended
            self._loop.call_soon_threadsafe(callback)

    def _live(self) -> None:
        try:
            asyncio.run(self._begin())
        except Exception:
            _log.exception("%s: the work ended; the next run of its task restarts it", self._name)
        finally:
            self._begun.set()

    async def _begin(self) -> None:
        self._loop, self._due, self._stop = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._begun.set()
        await self._work(self._due, self._stop)


class Stoppable(Protocol):
    """Work in a thread of its own, such as a `LoopThread` or several of them."""

    def begin_stop(self) -> None: ...

    def stop(self, spent_s: float = 0.0) -> None: ...


def stop_together(threads: Sequence[Stoppable]) -> None:
    """Stop all threads within the time of the slowest one. Idempotent."""
    began_s = monotonic()
    for each in threads:
        each.begin_stop()
    for each in threads:
        each.stop(monotonic() - began_s)
