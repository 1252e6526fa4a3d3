"""Tasks that run every few seconds in their own thread, without the broker, whatever else their worker does.

Celery's worker has one slot. A task that takes minutes, such as a verification of the ledger, must not delay a step of
a release, a delivery or an eval.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from celery import Celery

JOIN_S = 5.0
"""The time that a running task has to finish when the worker stops. A task tolerates an interruption."""

logger = logging.getLogger(__name__)


class PromptTasks:
    """Runs each as a Celery task, so that it counts and logs like the others. A task that takes longer than its period
    runs again at once, but never twice at a time."""

    def __init__(
        self, app: Celery, periods_s: Mapping[str, float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """periods_s: seconds between two runs, by the task's name."""
        self._app = app
        self._periods_s = periods_s
        self._clock = clock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prompt tasks", daemon=True)

    def start(self) -> None:
        """Run each task now, and then once every period."""
        self._thread.start()

    def begin_stop(self) -> None:
        """Start no more tasks, and return at once. Idempotent."""
        self._stopped.set()

    def stop(self, spent_s: float = 0.0) -> None:
        """Start no more tasks and end the thread. Idempotent. spent_s: time since `begin_stop`."""
        self.begin_stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, JOIN_S - spent_s))

    def _run(self) -> None:
        due_s = dict.fromkeys(self._periods_s, self._clock())
        while due_s:
            name = min(due_s, key=due_s.__getitem__)
            if self._stopped.wait(max(0.0, due_s[name] - self._clock())):
                return
            try:
                self._app.tasks[name].apply()  # stores the task's own exceptions
            except BaseException:  # SystemExit too: the other tasks depend on this thread
                logger.exception("%s failed; it runs again in %g s", name, self._periods_s[name])
            due_s[name] = max(due_s[name] + self._periods_s[name], self._clock())
