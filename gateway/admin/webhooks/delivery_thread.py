"""Webhook delivery in a thread of its own, so that no task of the worker waits for anybody's server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

from gateway.admin.config import WebhooksConfig
from gateway.admin.webhooks.delivery import STOP_GRACE_S, WebhookDelivery
from gateway.admin.webhooks.metrics import WebhookMetrics

JOIN_S = STOP_GRACE_S + 2.0

_log = logging.getLogger(__name__)


class DeliveryThread:
    """One per worker process. The thread begins with the first `wake`, and again with the next should it ever end.

    pepper: asked for in the thread.
    """

    def __init__(
        self,
        database_url: str,
        pepper: Callable[[], bytes],
        config: WebhooksConfig,
        metrics: WebhookMetrics | None = None,
    ) -> None:
        self._metrics = metrics
        self._database_url = database_url
        self._pepper = pepper
        self._config = config
        self._thread: threading.Thread | None = None
        self._begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._due: asyncio.Event
        self._stop: asyncio.Event

    def wake(self) -> None:
        """Something may be due. Returns at once."""
        if self._thread is None or not self._thread.is_alive():
            self._begun.clear()
            self._thread = threading.Thread(target=self._work, name="webhooks", daemon=True)
            self._thread.start()
            self._begun.wait()
        self._tell(lambda: self._due.set())

    def stop(self) -> None:
        """Start nothing more and end; what is still under way then comes back after its lease. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            self._tell(lambda: self._stop.set())
            self._tell(lambda: self._due.set())
            thread.join(JOIN_S)

    def _tell(self, what: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended this moment
            self._loop.call_soon_threadsafe(what)

    def _work(self) -> None:
        try:
            asyncio.run(self._deliver())
        except Exception:
            _log.exception("webhooks: delivery ended; the next run of its task begins another")
        finally:
            self._begun.set()

    async def _deliver(self) -> None:
        self._loop, self._due, self._stop = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._begun.set()
        await WebhookDelivery(self._database_url, self._pepper(), self._config, self._metrics).run(
            self._due, self._stop
        )
