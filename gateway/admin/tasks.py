"""The worker's tasks of administration: deliver webhooks, forget what is past its time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import asyncpg
from celery import Celery

from gateway.admin.config import WebhooksConfig
from gateway.admin.idempotency import FORGET
from gateway.admin.webhooks.courier import Courier
from gateway.db.engine import FAILURES, connect

DELIVER = "webhooks.deliver"
SWEEP = "admin.sweep"
DELIVER_EVERY_S = 2.0
SWEEP_EVERY_S = 3_600.0
ROUNDS = 5
"""Full batches in a row before other tasks get their turn."""

_log = logging.getLogger(__name__)


def schedule() -> dict[str, dict[str, object]]:
    """For Celery's beat; a run that waits longer than its period is dropped."""
    return {
        "deliver webhooks": {"task": DELIVER, "schedule": DELIVER_EVERY_S, "options": {"expires": DELIVER_EVERY_S}},
        "sweep administration": {"task": SWEEP, "schedule": SWEEP_EVERY_S, "options": {"expires": SWEEP_EVERY_S}},
    }


def add_tasks(app: Celery, database_url: str, pepper: Callable[[], bytes], config: WebhooksConfig) -> None:
    """Register both. A database that is away is met again at the next run."""

    @app.task(name=DELIVER, shared=False)  # type: ignore[untyped-decorator]
    def deliver_webhooks() -> int:
        return asyncio.run(_deliver(database_url, pepper(), config))

    @app.task(name=SWEEP, shared=False)  # type: ignore[untyped-decorator]
    def sweep() -> None:
        asyncio.run(_sweep(database_url, pepper(), config))


async def _deliver(database_url: str, pepper: bytes, config: WebhooksConfig) -> int:
    courier, tried = Courier(database_url, pepper, config), 0
    try:
        for _ in range(ROUNDS):
            count = await courier.round()
            tried += count
            if count < config.batch:
                break
    except FAILURES as error:
        _log.warning("webhooks wait for the database: %r", error)
    return tried


async def _sweep(database_url: str, pepper: bytes, config: WebhooksConfig) -> None:
    try:
        await Courier(database_url, pepper, config).sweep()
        connection: asyncpg.Connection = await connect(database_url, name="slipstream-sweep")
        try:
            await connection.execute(FORGET)
        finally:
            await connection.close()
    except FAILURES as error:
        _log.warning("the sweep waits for the database: %r", error)
