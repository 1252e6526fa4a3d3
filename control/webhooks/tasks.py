"""The worker's tasks for administration, which deliver webhooks and delete expired rows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import asyncpg
from celery import Celery

from control.api.config import WebhooksConfig
from control.api.idempotency import FORGET, KEPT
from control.console.upkeep import forget_console
from control.webhooks.delivery import WebhookDelivery
from storage.engine import FAILURES, connect

DELIVER = "webhooks.deliver"
SWEEP = "admin.sweep"
PERIODS_S = {DELIVER: 2.0, SWEEP: 3_600.0}
"""Interval of each task."""

_log = logging.getLogger(__name__)


def add_tasks(
    app: Celery, database_url: str, pepper: Callable[[], bytes], config: WebhooksConfig, wake: Callable[[], None]
) -> None:
    """Register both tasks. If the database is unreachable, the next run retries.

    wake: makes the process's delivery thread look for due deliveries, and returns at once. The task ends before
    anything is sent, so no silent receiver keeps the worker from its other tasks.
    """

    @app.task(name=DELIVER, shared=False)  # type: ignore[untyped-decorator]
    def deliver_webhooks() -> None:
        wake()

    @app.task(name=SWEEP, shared=False)  # type: ignore[untyped-decorator]
    def sweep() -> None:
        asyncio.run(_sweep(database_url, pepper(), config))


async def _sweep(database_url: str, pepper: bytes, config: WebhooksConfig) -> None:
    try:
        await WebhookDelivery(database_url, pepper, config).sweep()
        connection: asyncpg.Connection = await connect(database_url, name="slipstream-sweep")
        try:
            await connection.execute(FORGET, KEPT)
            await forget_console(connection)
        finally:
            await connection.close()
    except FAILURES as error:
        _log.warning("the sweep waits for the database: %r", error)
