"""The worker's metrics: ended tasks with their states and durations."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from celery import signals, states
from prometheus_client import CollectorRegistry, Counter, Histogram

TASK_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800)


class WorkerMetrics:
    """Counts this process's tasks by Celery's signals, after a call of `follow`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._tasks = Counter(
            "slipstream_worker_tasks",
            "Tasks that ended, by name and Celery state: SUCCESS, FAILURE, RETRY.",
            ["task", "state"],
            registry=registry,
        )
        self._task_seconds = Histogram(
            "slipstream_worker_task_seconds",
            "Wall time of tasks, by name.",
            ["task"],
            buckets=TASK_BUCKETS_S,
            registry=registry,
        )
        self._began_s: dict[str, float] = {}
        """Start times by task id."""

    def follow(self, scheduled: Iterable[str]) -> None:
        """Count from now on. scheduled: names of the tasks that this process schedules."""
        for task in scheduled:
            self._tasks.labels(task, states.FAILURE)  # starts at 0, so that the first failure is an increase
        signals.task_prerun.connect(self._began, weak=False)
        signals.task_postrun.connect(self._ended, weak=False)

    def _began(self, task_id: str, **_: Any) -> None:
        self._began_s[task_id] = time.monotonic()

    def _ended(self, task_id: str, task: Any, state: str | None, **_: Any) -> None:
        self._tasks.labels(task.name, state).inc()
        self._task_seconds.labels(task.name).observe(time.monotonic() - self._began_s.pop(task_id))
