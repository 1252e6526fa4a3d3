"""The worker's tasks of evals: see whether anything is to be run, and queue what the schedule asks each night.

The runs themselves are worked on in a thread of the worker's own (runner.py): a task that took hours would keep Celery
from noticing anything else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import asyncpg
from celery import Celery

from contracts.errors import ConfigError
from evals.runs.config import EvalsConfig
from gateway.audit.log import Actor, Change, record
from gateway.db.engine import FAILURES, connect
from gateway.desired.revision import newest
from gateway.evals import store

WORK = "evals.work"
QUEUE_NIGHT = "evals.queue_night"
PERIODS_S = {WORK: 2.0}
"""How often each runs that is not scheduled by the settings."""
ACTOR = Actor.system("slipstream worker")
LATEST_S = 3_600
"""A night whose task was not taken within so long is left out."""

_log = logging.getLogger(__name__)


def schedule(config: EvalsConfig) -> dict[str, dict[str, Any]]:
    """For Celery's `beat_schedule`; empty where nothing is scheduled."""
    when = config.crontab()
    if when is None:
        return {}
    return {QUEUE_NIGHT: {"task": QUEUE_NIGHT, "schedule": when, "options": {"expires": LATEST_S}}}


def add_tasks(app: Celery, database_url: str, config: EvalsConfig, wake: Callable[[], None]) -> None:
    """Register both. wake: has the process's runner look for what is queued, and returns at once."""

    @app.task(name=WORK, shared=False)  # type: ignore[untyped-decorator]
    def work() -> None:
        wake()

    @app.task(name=QUEUE_NIGHT, shared=False)  # type: ignore[untyped-decorator]
    def queue_night() -> None:
        try:
            asyncio.run(_queue_night(database_url, config))
        except (*FAILURES, ConfigError) as error:
            _log.warning("evals: nothing was queued for tonight: %r", error)
        wake()


async def _queue_night(database_url: str, config: EvalsConfig) -> None:
    connection = await connect(database_url, name="slipstream-evals-night")
    try:
        async with connection.transaction():
            await queue_models(connection, config, datetime.now(UTC).date())
    finally:
        await connection.close()


async def queue_models(connection: asyncpg.Connection[Any], config: EvalsConfig, night: date) -> list[UUID]:
    """Queue a run of every model on its own pool, once a night whoever asks; returns those queued now."""
    queued = []
    for model in (await newest(connection)).state.models:
        slices = dict.fromkeys(config.chosen_for(model.tier), config.items)
        if not slices:
            continue
        run_id = await store.queue_run(connection, model=model.name, pool=model.pool, slices=slices, night=night)
        if run_id is not None:
            made = await store.run(connection, run_id)
            await record(
                connection, ACTOR, Change(action="eval.run", subject_id=str(run_id), organization_id=None, after=made)
            )
            queued.append(run_id)
    return queued
