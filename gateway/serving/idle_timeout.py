"""Finds waits that have lasted too long, and clients that got no byte for too long, for all requests at once.

A timer per event would cost more than the event. So each stream notes when it began to wait, and one sweep a second
finds the waits that are too long.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from contracts.background_task import BackgroundTask
from gateway.serving.heartbeat import Heartbeat


class Wait:
    """One stream's current wait. `since_s` is 0 while it does not wait."""

    __slots__ = ("heartbeat", "limit_s", "on_stall", "since_s")

    def __init__(self) -> None:
        self.since_s = 0.0
        self.limit_s = 0.0
        self.on_stall: Callable[[], None] | None = None
        self.heartbeat: Heartbeat | None = None
        """Heartbeat for the client during any wait; None for no heartbeat."""

    def begin(self, limit_s: float, on_stall: Callable[[], None]) -> None:
        """Begin a wait. `on_stall` is called once if it lasts longer than `limit_s`."""
        self.limit_s = limit_s
        self.on_stall = on_stall
        self.since_s = time.monotonic()

    def begin_again(self, limit_s: float, now_s: float) -> None:
        """Restart the wait for the rest, because a part has arrived. now_s: `time.monotonic()`."""
        self.limit_s = limit_s
        self.since_s = now_s

    def end(self) -> None:
        self.since_s = 0.0
        self.on_stall = None  # it refers to the waiter, a cycle that only the garbage collector would free


class IdleTimeouts:
    """Holds the waits of all live requests."""

    def __init__(self, period_s: float = 1.0) -> None:
        self._waits: set[Wait] = set()
        self.task = BackgroundTask.every(period_s, lambda: self.sweep(time.monotonic()), "idle timeouts")

    def add(self, wait: Wait) -> None:
        """Watch a request's waits."""
        self._waits.add(wait)

    def remove(self, wait: Wait) -> None:
        """Stop watching a request's waits."""
        self._waits.discard(wait)

    def sweep(self, now_s: float) -> None:
        """Call `on_stall` of every wait that is over its limit at `now_s`, and sweep the heartbeats."""
        for wait in tuple(self._waits):
            if wait.heartbeat is not None:
                wait.heartbeat.sweep(now_s)
            if wait.since_s and now_s - wait.since_s > wait.limit_s and wait.on_stall is not None:
                on_stall, wait.on_stall = wait.on_stall, None
                on_stall()
