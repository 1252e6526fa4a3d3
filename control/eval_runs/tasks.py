"""The worker's tasks of evals: wake the runner, and queue the scheduled runs of each night.

The runs themselves have a thread of their own (runner.py): a task that takes hours would block Celery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from celery import Celery

from contracts.errors import ConfigError
from control.eval_runs.config import EvalsConfig
from control.eval_runs.night_plan import NightPlanner
from storage.engine import FAILURES, connect

WORK = "evals.work"
QUEUE_NIGHT = "evals.queue_night"
PERIODS_S = {WORK: 2.0}
"""Interval in seconds of each task without a schedule in the settings."""
LATEST_S = 3_600
"""A night whose task is not taken within this time is skipped."""

_log = logging.getLogger(__name__)


def schedule(config: EvalsConfig) -> dict[str, dict[str, Any]]:
    """The entries of Celery's `beat_schedule`; empty without a schedule."""
    when = config.crontab()
    if when is None:
        return {}
    return {QUEUE_NIGHT: {"task": QUEUE_NIGHT, "schedule": when, "options": {"expires": LATEST_S}}}


def add_tasks(app: Celery, database_url: str, planner: NightPlanner, wake: Callable[[], None]) -> None:
    """Register both tasks. wake: lets the process's runner check the queue, and returns at once."""

    @app.task(name=WORK, shared=False)  # type: ignore[untyped-decorator]
    def work() -> None:
        wake()

    @app.task(name=QUEUE_NIGHT, shared=False)  # type: ignore[untyped-decorator]
    def queue_night() -> None:
        try:
            asyncio.run(_queue_night(database_url, planner))
        except (*FAILURES, ConfigError) as error:
            _log.warning("evals: nothing was queued for tonight: %r", error)
        wake()


async def _queue_night(database_url: str, planner: NightPlanner) -> None:
    connection = await connect(database_url, name="slipstream-evals-night")
    try:
        async with connection.transaction():
            now = datetime.now(UTC)
            if await planner.is_young(connection, now):
                _log.info("evals: this deployment is too young for a night of evals")
                return
            await planner.queue(connection, planner.night_at(now))
    finally:
        await connection.close()
