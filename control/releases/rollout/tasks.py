"""The worker's task for releases: one look at each, every few seconds.

It may run twice, late, or in two workers at once, and costs a few reads if no release runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import asyncpg
from celery import Celery

from control.releases import store
from control.releases.rollout.config import ReleasesConfig
from control.releases.rollout.controller import Controller
from control.releases.rollout.metrics import ReleaseMetrics, Standing
from storage.engine import FAILURES, connect

ADVANCE = "releases.advance"


class ReleaseTask:
    """The task of one worker process. It keeps its connection, because it runs every two seconds."""

    def __init__(self, database_url: str, config: ReleasesConfig, metrics: ReleaseMetrics) -> None:
        self._database_url = database_url
        self._controller = Controller(config)
        self._metrics = metrics
        self._running = threading.Lock()
        self._runner: asyncio.Runner | None = None
        self._connection: asyncpg.Connection[Any] | None = None

    def run(self) -> int:
        """Look at every release once; returns the number of steps taken. Raises FAILURES of the database."""
        with self._running:
            if self._runner is None:
                self._runner = asyncio.Runner()
            return self._runner.run(self._look())

    async def _look(self) -> int:
        connection = self._connection
        if connection is None or connection.is_closed():
            connection = self._connection = await connect(self._database_url, name="slipstream-releases")
        try:
            steps = await self._controller.tick(connection)
            found = await store.newest_by_model(connection)
        except FAILURES:
            connection.terminate()
            raise
        blind_s = self._controller.blind_s
        standings = (
            Standing(
                each.model, each.state, each.share, each.stage_began_at, each.ended_at, blind_s.get(each.id, 0.0)
            )
            for each in found
        )  # fmt: skip
        self._metrics.tell(standings, time.time())
        return steps

    def close(self) -> None:
        """Close the connection."""
        runner, self._runner = self._runner, None
        if runner is not None:
            with contextlib.suppress(*FAILURES):
                if self._connection is not None:
                    runner.run(self._connection.close())
            runner.close()


def periods_s(config: ReleasesConfig) -> dict[str, float]:
    """Seconds between two runs of the task."""
    return {ADVANCE: config.every_s}


def add_tasks(app: Celery, releases: ReleaseTask) -> None:
    """Register the task with the worker's application. It has no retries: the next run is as good."""

    @app.task(name=ADVANCE, shared=False)  # type: ignore[untyped-decorator]
    def advance_releases() -> None:
        releases.run()
