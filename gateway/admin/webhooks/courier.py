"""Takes due deliveries out of the database, sends them, and writes down how it went. Run by the worker.

A delivery that is taken is put off by a lease first: a worker that dies in between loses nothing, and the receiver may
get an event twice (its id is the same). The pauses between attempts grow and are drawn at random from half to whole.
"""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from gateway.admin.config import WebhooksConfig
from gateway.admin.sealed import unseal
from gateway.admin.tables import DeliveryState
from gateway.admin.webhooks import signature
from gateway.admin.webhooks.sender import Outcome, Sender
from gateway.db.engine import connect

LEASE_MARGIN_S = 30.0
GROWTH = 3

TAKE = """
UPDATE gateway.webhook_deliveries AS delivery SET next_attempt_at = now() + make_interval(secs => $2)
  FROM (SELECT id FROM gateway.webhook_deliveries
         WHERE state = 'pending' AND next_attempt_at <= now()
         ORDER BY next_attempt_at LIMIT $1 FOR UPDATE SKIP LOCKED) AS due,
       gateway.webhooks AS webhook, gateway.webhook_events AS event
 WHERE delivery.id = due.id AND webhook.id = delivery.webhook_id AND event.id = delivery.event_id
RETURNING delivery.id, delivery.attempts, webhook.id AS webhook_id, url, secret,
          CASE WHEN previous_secret_expires_at > now() THEN previous_secret END AS previous_secret,
          webhook.disabled_at IS NOT NULL AS disabled,
          event.id AS event_id, event.type, event.organization_id, event.data::text AS data, event.created_at
"""
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


class Courier:
    """Several rounds may run at once, here and in other workers."""

    def __init__(self, url: str, pepper: bytes, config: WebhooksConfig) -> None:
        self._url = url
        self._pepper = pepper
        self._config = config

    async def round(self) -> int:
        """Try what is due, up to a batch; returns how many were tried. Raises what asyncpg raises."""
        connection = await connect(self._url, name="slipstream-webhooks")
        try:
            lease_s = self._config.timeout_s + LEASE_MARGIN_S
            rows = await connection.fetch(TAKE, self._config.batch, lease_s)
            if rows:
                async with Sender(self._config) as sender:
                    outcomes = await asyncio.gather(*(self._try(sender, row) for row in rows))
                for row, outcome in zip(rows, outcomes, strict=True):
                    await self._note(connection, row, outcome)
            return len(rows)
        finally:
            await connection.close()

    async def sweep(self) -> None:
        """Forget events past their time, with their deliveries."""
        connection = await connect(self._url, name="slipstream-webhooks")
        try:
            await connection.execute(SWEEP, self._config.kept_days)
        finally:
            await connection.close()

    async def _try(self, sender: Sender, row: asyncpg.Record) -> Outcome | None:
        """None: the webhook was disabled meanwhile."""
        if row["disabled"]:
            return None
        envelope = Envelope(
            id=row["event_id"],
            type=row["type"],
            created_at=row["created_at"].astimezone(UTC),
            organization_id=row["organization_id"],
            data=msgspec.Raw(row["data"].encode()),
        )
        body = msgspec.json.encode(envelope)
        use = use_of(row["webhook_id"])
        try:
            live = [
                unseal(self._pepper, use, sealed).decode()
                for sealed in (row["secret"], row["previous_secret"])
                if sealed is not None
            ]
        except ValueError as error:
            return Outcome(None, str(error), 0.0)
        headers = signature.headers(str(row["event_id"]), int(time.time()), body, live)
        return await sender.send(row["url"], body, headers)

    async def _note(self, connection: asyncpg.Connection[Any], row: asyncpg.Record, outcome: Outcome | None) -> None:
        attempt = row["attempts"] + 1
        if outcome is None:
            await connection.execute(SETTLE, row["id"], DeliveryState.FAILED.value, row["attempts"], 0.0)
            return
        state, pause_s = DeliveryState.DELIVERED, 0.0
        if not outcome.delivered:
            state = DeliveryState.FAILED if attempt >= self._config.attempts else DeliveryState.PENDING
            pause_s = pause_after(attempt, self._config) * random.uniform(0.5, 1.0)  # noqa: S311
        async with connection.transaction():
            await connection.execute(NOTE, row["id"], attempt, outcome.status, outcome.error, outcome.duration_ms)
            await connection.execute(SETTLE, row["id"], state.value, attempt, pause_s)


def pause_after(attempt: int, config: WebhooksConfig) -> float:
    """The longest pause after this many failed attempts, in seconds."""
    return float(min(config.first_pause_s * GROWTH ** (attempt - 1), config.longest_pause_s))


def use_of(webhook_id: UUID) -> str:
    """What a webhook's secret is sealed for."""
    return f"webhook:{webhook_id}"
