"""The worker's task for releases: one look at each, every few seconds.

It bears being run twice, late, or by two workers at once, and costs a few reads where no release runs.
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
    """What the task does. One per worker process; keeps its connection, for it is run every two seconds."""

    def __init__(self, database_url: str, config: ReleasesConfig, metrics: ReleaseMetrics) -> None:
        self._database_url = database_url
        self._controller = Controller(config)
        self._metrics = metrics
        self._running = threading.Lock()
        self._runner: asyncio.Runner | None = None
        self._connection: asyncpg.Connection[Any] | None = None

    def run(self) -> int:
        """One look at every release; returns how many steps were taken. Raises FAILURES of the database."""
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
        """Give the connection back."""
        runner, self._runner = self._runner, None
        if runner is not None:
            with contextlib.suppress(*FAILURES):
                if self._connection is not None:
                    runner.run(self._connection.close())
            runner.close()


def periods_s(config: ReleasesConfig) -> dict[str, float]:
    """How often it runs."""
    return {ADVANCE: config.every_s}


def add_tasks(app: Celery, releases: ReleaseTask) -> None:
    """Make the task known to the worker's application. It is not tried again: the next run is as good."""

    @app.task(name=ADVANCE, shared=False)  # type: ignore[untyped-decorator]
    def advance_releases() -> None:
        releases.run()
