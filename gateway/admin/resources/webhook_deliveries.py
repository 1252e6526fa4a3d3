"""The log of deliveries: what was sent where, how it went, and once more on demand."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from contracts.errors import Conflict
from gateway.admin.bodies import Page, PageQuery
from gateway.admin.call import AdminCall, not_found
from gateway.admin.endpoint import endpoint
from gateway.admin.pages import page_of, record_of
from gateway.admin.resources.webhooks import find_webhook
from gateway.admin.tables import DeliveryState
from gateway.tenants.roles import Permission

SELECT = """
SELECT delivery.id, webhook_id, event_id, event.type, delivery.state, delivery.attempts, next_attempt_at,
       delivery.created_at
  FROM gateway.webhook_deliveries AS delivery
  JOIN gateway.webhook_events AS event ON event.id = event_id
  JOIN gateway.webhooks AS webhook ON webhook.id = webhook_id
"""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event on its way to one webhook. next_attempt_at: meaningful while it is pending."""

    id: UUID
    webhook_id: UUID
    event_id: UUID
    type: str
    state: DeliveryState
    attempts: int
    next_attempt_at: datetime
    created_at: datetime


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try. status: of the receiver's answer, null without one; error: null for a 2xx."""

    attempt: int
    at: datetime
    status: int | None
    error: str | None
    duration_ms: float


class DeliveryLog(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery with its attempts, the first first."""

    delivery: Delivery
    attempts: list[DeliveryAttempt]


class DeliveryQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    state: DeliveryState | None = None


async def find_delivery(call: AdminCall, delivery_id: UUID) -> tuple[Delivery, UUID]:
    """It and whose it is. Raises NotFound, for another organization's principal too."""
    row = await call.connection.fetchrow(
        f"{SELECT} WHERE delivery.id = $1 AND ($2::uuid IS NULL OR webhook.organization_id = $2)",
        delivery_id,
        call.scope,
    )
    if row is None:
        raise not_found("delivery", delivery_id)
    delivery = record_of(Delivery, row)
    webhook = await find_webhook(call, delivery.webhook_id)
    return delivery, webhook.organization_id


@endpoint("GET", "/webhooks/{webhook_id}/deliveries", Permission.WEBHOOKS_READ)
async def list_deliveries(call: AdminCall, webhook_id: UUID, query: DeliveryQuery) -> Page[Delivery]:
    """List a webhook's deliveries, newest first."""
    await find_webhook(call, webhook_id)
    where = call.where("webhook.organization_id")
    where.add("webhook_id = {}", webhook_id)
    where.add_if("delivery.state = {}", query.state and query.state.value)
    return await page_of(call.connection, Delivery, SELECT, where, query, table="delivery")


@endpoint("GET", "/deliveries/{delivery_id}", Permission.WEBHOOKS_READ)
async def get_delivery(call: AdminCall, delivery_id: UUID) -> DeliveryLog:
    """One delivery with every attempt."""
    delivery, _ = await find_delivery(call, delivery_id)
    rows = await call.connection.fetch(
        "SELECT attempt, at, status, error, duration_ms FROM gateway.webhook_attempts"
        " WHERE delivery_id = $1 ORDER BY attempt",
        delivery_id,
    )
    return DeliveryLog(delivery=delivery, attempts=[record_of(DeliveryAttempt, row) for row in rows])


@endpoint("POST", "/deliveries/{delivery_id}/retry", Permission.WEBHOOKS_WRITE, status=200)
async def retry_delivery(call: AdminCall, delivery_id: UUID) -> Delivery:
    """Send an event once more, with the same id, whether it failed or arrived."""
    before, organization_id = await find_delivery(call, delivery_id)
    if before.state is DeliveryState.PENDING:
        raise Conflict("This delivery is still being tried.")
    await call.connection.execute(
        "UPDATE gateway.webhook_deliveries SET state = 'pending', next_attempt_at = now() WHERE id = $1", delivery_id
    )
    after, _ = await find_delivery(call, delivery_id)
    call.audit("delivery.retry", delivery_id, organization_id=organization_id, before=before, after=after)
    return after


ENDPOINTS = (list_deliveries, get_delivery, retry_delivery)
