"""Tasks that run every few seconds whatever else their worker does: in a thread of their own, without the broker.

Celery's worker has one slot. A task that takes minutes, such as a verification of the ledger, must hold up no step of a
release, no delivery and no eval.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from celery import Celery

JOIN_S = 5.0
"""The time that a task under way has when the worker is to end. A task bears being cut off."""

logger = logging.getLogger(__name__)


class PromptTasks:
    """Runs each as a task of Celery's, so that it counts and logs like the others. A task that takes longer than its
    period runs again at once, and never twice at a time."""

    def __init__(
        self, app: Celery, periods_s: Mapping[str, float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """periods_s: how often each runs, by the task's name."""
        self._app = app
        self._periods_s = periods_s
        self._clock = clock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prompt tasks", daemon=True)

    def start(self) -> None:
        """Run each now, and then every period."""
        self._thread.start()

    def stop(self) -> None:
        """Start nothing more and end. Idempotent."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        due_s = dict.fromkeys(self._periods_s, self._clock())
        while due_s:
            name = min(due_s, key=due_s.__getitem__)
            if self._stopped.wait(max(0.0, due_s[name] - self._clock())):
                return
            try:
                self._app.tasks[name].apply()  # keeps what the task raises
            except BaseException:  # SystemExit too: the other tasks depend on this thread
                logger.exception("%s failed; it runs again in %g s", name, self._periods_s[name])
            due_s[name] = max(due_s[name] + self._periods_s[name], self._clock())
