"""Delivers webhooks in a separate thread, so that no task of the worker waits for a receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from contracts.loop_thread import LoopThread
from control.api.config import WebhooksConfig
from control.webhooks.delivery import STOP_GRACE_S, WebhookDelivery
from control.webhooks.metrics import WebhookMetrics

JOIN_S = STOP_GRACE_S + 2.0


class DeliveryThread(LoopThread):
    """One per worker process. Deliveries in progress when it stops are retried after their lease.

    pepper: called in the thread.
    """

    def __init__(
        self,
        database_url: str,
        pepper: Callable[[], bytes],
        config: WebhooksConfig,
        metrics: WebhookMetrics | None = None,
    ) -> None:
        async def deliver(due: asyncio.Event, stop: asyncio.Event) -> None:
            await WebhookDelivery(database_url, pepper(), config, metrics).run(due, stop)

        super().__init__("webhooks", deliver, JOIN_S)
