"""Sends due deliveries and records the outcomes. The worker runs it.

A lease first postpones a delivery that is taken, so that nothing is lost if the worker dies; the receiver may then get
an event twice, with the same id. The pauses between attempts grow, and are drawn at random from half to whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import asyncpg
import msgspec
from prometheus_client import CollectorRegistry

from control.api.config import WebhooksConfig
from control.api.sealed import unseal
from control.webhooks import signature
from control.webhooks.metrics import WebhookMetrics
from control.webhooks.outbox import EventType
from control.webhooks.outcome import Outcome
from control.webhooks.queue import Due, take_due
from control.webhooks.tables import DeliveryState
from storage.engine import FAILURES, borrow, connect, lazy_pool

if TYPE_CHECKING:
    from control.webhooks.sender import Sender

GROWTH = 3
CONNECTIONS = 4
CONNECT_TIMEOUT_S = 5.0
STOP_GRACE_S = 3.0

_log = logging.getLogger(__name__)
Connection: TypeAlias = "asyncpg.Connection[Any]"

NOTE = "INSERT INTO gateway.webhook_attempts (delivery_id, attempt, status, error, duration_ms) VALUES ($1,$2,$3,$4,$5)"
SETTLE = """
UPDATE gateway.webhook_deliveries SET state = $2, attempts = $3, next_attempt_at = now() + make_interval(secs => $4)
 WHERE id = $1
"""
SWEEP = "DELETE FROM gateway.webhook_events WHERE created_at < now() - make_interval(days => $1)"


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery's body."""

    id: UUID
    type: str
    created_at: datetime
    organization_id: UUID
    data: msgspec.Raw


class WebhookDelivery:
    """Delivers webhooks. Several may run at once, in this worker and in others.

    Each delivery takes a slot while it is in progress. Due deliveries start as slots become free, with turns among the
    organizations (queue.py), none of which may hold more than its share: a receiver that never responds costs its own
    organization slots and others no time.
    """

    def __init__(self, url: str, pepper: bytes, config: WebhooksConfig, metrics: WebhookMetrics | None = None) -> None:
        self._url = url
        self._pepper = pepper
        self._config = config
        self._metrics = metrics or WebhookMetrics(CollectorRegistry())

    async def run(self, due: asyncio.Event, stop: asyncio.Event) -> None:
        """Deliver due events until `stop` is set. Deliveries in progress then have STOP_GRACE_S to end.

        due: set when a delivery may be ready to start, such as after each ended delivery. While the database is
        unreachable, nothing starts until it is set next.
        """
        async with self.at_work(due.set) as shift:
            while not stop.is_set():
                await due.wait()
                due.clear()
                try:
                    await shift.start_due()
                except FAILURES as error:
                    _log.warning("webhooks wait for the database: %r", error)
            await shift.end(STOP_GRACE_S)

    async def sweep(self) -> None:
        """Delete expired events and their deliveries."""
        connection = await connect(self._url, name="slipstream-webhooks")
        try:
            await connection.execute(SWEEP, self._config.kept_days)
        finally:
            await connection.close()

    @contextlib.asynccontextmanager
    async def at_work(self, on_slot_free: Callable[[], None] = lambda: None) -> AsyncIterator[Shift]:
        """Slots for the block. Deliveries in progress at its end are cancelled, and retried after their lease."""
        from control.webhooks.sender import Sender  # aiohttp's client sets up TLS when it is imported

        name = "slipstream-webhooks"
        pool = await lazy_pool(self._url, size=CONNECTIONS, connect_timeout_s=CONNECT_TIMEOUT_S, name=name)
        try:
            async with Sender(self._config) as sender:
                shift = Shift(pool, sender, self._pepper, self._config, on_slot_free, self._metrics)
                try:
                    yield shift
                finally:
                    await shift.end(0)
        finally:
            pool.terminate()


class Shift:
    """The slots of one run, and the deliveries in them."""

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        sender: Sender,
        pepper: bytes,
        config: WebhooksConfig,
        on_slot_free: Callable[[], None],
        metrics: WebhookMetrics,
    ) -> None:
        self._pool = pool
        self._sender = sender
        self._pepper = pepper
        self._config = config
        self._on_slot_free = on_slot_free
        self._metrics = metrics
        self._under_way: dict[asyncio.Task[None], Due] = {}

    async def start_due(self) -> int:
        """Start the due deliveries that fit, and return their number. Raises asyncpg's errors."""
        async with borrow(self._pool) as connection:
            found = await take_due(connection, list(self._under_way.values()), self._config)
        for delivery in found:
            task = asyncio.create_task(self._deliver(delivery), name="webhook-delivery")
            self._under_way[task] = delivery
            task.add_done_callback(self._ended)
        return len(found)

    async def end(self, grace_s: float) -> None:
        """Wait for deliveries in progress, then cancel them: they are retried after their lease."""
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a webhook delivery failed on our side; it is retried after its lease", exc_info=error)
        self._on_slot_free()

    async def _deliver(self, delivery: Due) -> None:
        outcome = await self._try(delivery)
        try:
            async with borrow(self._pool) as connection:
                await self._note(connection, delivery, outcome)
        except FAILURES as error:  # sent but not recorded: it is sent again after its lease, with the same id
            _log.warning("a webhook delivery could not be recorded: %r", error)

    async def _try(self, delivery: Due) -> Outcome | None:
        """Send a delivery. None if the webhook has been disabled."""
        if delivery.disabled:
            return None
        envelope = Envelope(
            id=delivery.event_id,
            type=delivery.type,
            created_at=delivery.created_at.astimezone(UTC),
            organization_id=delivery.organization_id,
            data=msgspec.Raw(delivery.data.encode()),
        )
        body = msgspec.json.encode(envelope)
        use = use_of(delivery.webhook_id)
        try:
            live = [
                unseal(self._pepper, use, sealed).decode()
                for sealed in (delivery.secret, delivery.previous_secret)
                if sealed is not None
            ]
        except ValueError as error:
            return Outcome(None, str(error), 0.0)
        headers = signature.headers(str(delivery.event_id), int(time.time()), body, live)
        return await self._sender.send(delivery.url, body, headers)

    async def _note(self, connection: Connection, delivery: Due, outcome: Outcome | None) -> None:
        attempt = delivery.attempts + 1
        if outcome is None:
            await connection.execute(SETTLE, delivery.id, DeliveryState.FAILED.value, delivery.attempts, 0.0)
            return
        state, pause_s = DeliveryState.DELIVERED, 0.0
        if not outcome.delivered:
            # A person waits for a test: it fails at once, and can be sent again.
            limit = 1 if delivery.type == EventType.TEST else self._config.attempts
            state = DeliveryState.FAILED if attempt >= limit else DeliveryState.PENDING
            pause_s = pause_after(attempt, self._config) * random.uniform(0.5, 1.0)  # noqa: S311
        async with connection.transaction():
            await connection.execute(NOTE, delivery.id, attempt, outcome.status, outcome.error, outcome.duration_ms)
            await connection.execute(SETTLE, delivery.id, state.value, attempt, pause_s)
        self._metrics.tried(delivered=outcome.delivered, last=state is DeliveryState.FAILED)


def pause_after(attempt: int, config: WebhooksConfig) -> float:
    """The longest pause after this many failed attempts, in seconds."""
    return float(min(config.first_pause_s * GROWTH ** (attempt - 1), config.longest_pause_s))


def use_of(webhook_id: UUID) -> str:
    """The use for which a webhook's secret is sealed."""
    return f"webhook:{webhook_id}"
