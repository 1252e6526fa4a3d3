"""Runs a worker's process: Celery's worker, its schedule and its threads, from the start to an end in time."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from celery import Celery, signals
from celery.apps import worker as celery_worker
from celery.beat import EmbeddedService, Scheduler
from celery.exceptions import SecurityWarning
from celery.worker import state

from contracts.errors import ServiceError, SlipstreamError, in_words
from contracts.loop_thread import LoopThread, stop_together
from infra.local.private import folder_error
from slipstream.prompt_tasks import PromptTasks
from telemetry.log import in_json

STOP_SHARE = 0.9
"""Share of the stop timeout after which the process interrupts its work, before a supervisor would kill it."""
FAILED = 1

logger = logging.getLogger(__name__)


class WorkerProcess:
    """Runs once. Celery only logs an exception of a signal's receiver, so this keeps the failure of a start."""

    def __init__(
        self,
        app: Celery,
        prompt: PromptTasks,
        threads: Sequence[LoopThread],
        ready: Path,
        at_start: Sequence[str],
        stop_timeout_s: float,
    ) -> None:
        """prompt: the tasks that wait for no other. threads: do work that tasks only wake. ready: a file that exists
        while the worker accepts tasks. at_start: the tasks that run at every start."""
        self._app = app
        self._prompt = prompt
        self._threads = threads
        self._ready = ready
        self._at_start = at_start
        self._stop_timeout_s = stop_timeout_s
        # A thread, not Celery's default second process, which would outlive a killed worker.
        # In memory, not in Celery's default file: an extra run is harmless, and every start begins with one.
        self._beat = EmbeddedService(app, thread=True, scheduler_cls=Scheduler)
        self._queues: tuple[str, ...] = ()
        self._failure: Exception | None = None

    def run(self, queues: Sequence[str]) -> None:
        """Serve these queues until SIGTERM or SIGINT. Raises ConfigError or ServiceError if the start fails, and
        SystemExit if Celery's worker fails."""
        self._queues = tuple(queues)
        logger.setLevel(logging.INFO)  # Celery gives the root its own level, WARNING
        if in_json():  # Celery prints its shutdown message
            celery_worker.safe_say = lambda text, *_: logger.info(text.strip())
        signals.worker_ready.connect(self._begin, weak=False)
        signals.worker_shutting_down.connect(self._stop_in_time, weak=False)
        # One process that runs one task at a time: about half the memory of a pool, and no process can be orphaned.
        with warnings.catch_warnings():
            # It recommends an option of Celery's command to root; units and containers choose our account.
            warnings.filterwarnings("ignore", "You're running the worker with superuser privileges", SecurityWarning)
            worker = self._app.Worker(
                queues=list(queues),
                pool="solo",
                concurrency=1,
                without_gossip=True,
                without_mingle=True,
                without_heartbeat=True,
                quiet=True,  # its banner is printed, not logged: if the log's disk is full, that ends the start
            )
        if os.geteuid() == 0:
            logger.warning("worker: running as root, which it does not need; run it under its own account")
        try:
            worker.start()
        finally:
            self._leave()
        if self._failure is not None:
            raise self._told(self._failure)
        if worker.exitcode:
            sys.exit(worker.exitcode)

    def _begin(self, **_: Any) -> None:
        try:
            for name in self._at_start:
                self._app.send_task(name)
            self._beat.start()
            self._prompt.start()
            self._ready.touch()
            logger.info("worker ready: takes tasks of %s", ", ".join(self._queues))
        except Exception as error:
            self._failure = error
            state.should_stop = FAILED  # an exit code, as Celery's own handlers set it

    def _stop_in_time(self, **_: Any) -> None:
        """Runs in a signal's handler: the current task continues, and is ended if it does not end in time."""
        guard = threading.Timer(self._stop_timeout_s * STOP_SHARE, self._end)
        guard.daemon = True
        guard.start()
        self._leave()

    def _leave(self) -> None:
        with contextlib.suppress(OSError):  # absent, or on a disk that became read-only
            self._ready.unlink()
        self._beat.service.stop()  # not beat.stop, which waits, and forever if the beat never started
        stop_together((self._prompt, *self._threads))

    def _end(self) -> None:
        """End the process. Tasks tolerate a second run: an interrupted one runs again after a restart or elsewhere."""
        logger.error(
            "worker: killed in the middle of its work, %g s after the request to stop",
            self._stop_timeout_s * STOP_SHARE,
        )
        logging.shutdown()
        os._exit(FAILED)

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, SlipstreamError):
            return error
        if isinstance(error, OSError) and error.filename == str(self._ready):
            return folder_error(self._ready, error)
        return ServiceError(f"worker: it could not start: {in_words(error)}")
