"""The log of deliveries: what was sent where, how it went, and once more on demand."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Select, func, select, update

from contracts.errors import Conflict
from gateway.admin.bodies import Page, PageQuery
from gateway.admin.call import AdminCall
from gateway.admin.pages import page_of
from gateway.admin.resources.webhooks import find_webhook
from gateway.admin.rows import columns_of, equal, fetch, record_of
from gateway.admin.tables import DeliveryState, webhook_attempts, webhook_deliveries, webhook_events, webhooks


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
    statement = _visible(call).where(webhook_deliveries.c.id == delivery_id)
    delivery = await call.find(Delivery, statement, "delivery", delivery_id)
    webhook = await find_webhook(call, delivery.webhook_id)
    return delivery, webhook.organization_id


async def list_deliveries(call: AdminCall, webhook_id: UUID, query: DeliveryQuery) -> Page[Delivery]:
    """List a webhook's deliveries, newest first."""
    await find_webhook(call, webhook_id)
    table = webhook_deliveries.c
    statement = _visible(call).where(table.webhook_id == webhook_id, equal(table.state, query.state))
    return await page_of(call.connection, Delivery, statement, query, table.created_at, table.id)


async def get_delivery(call: AdminCall, delivery_id: UUID) -> DeliveryLog:
    """One delivery with every attempt."""
    delivery, _ = await find_delivery(call, delivery_id)
    rows = await fetch(
        call.connection,
        select(*columns_of(DeliveryAttempt, webhook_attempts))
        .where(webhook_attempts.c.delivery_id == delivery_id)
        .order_by(webhook_attempts.c.attempt),
    )
    return DeliveryLog(delivery=delivery, attempts=[record_of(DeliveryAttempt, row) for row in rows])


async def retry_delivery(call: AdminCall, delivery_id: UUID) -> Delivery:
    """Send an event once more, with the same id, whether it failed or arrived."""
    before, organization_id = await find_delivery(call, delivery_id)
    if before.state is DeliveryState.PENDING:
        raise Conflict("This delivery is still being tried.")
    await call.value(
        update(webhook_deliveries)
        .where(webhook_deliveries.c.id == delivery_id)
        .values(state=DeliveryState.PENDING.value, next_attempt_at=func.now())
    )
    after, _ = await find_delivery(call, delivery_id)
    call.audit("delivery.retry", delivery_id, organization_id=organization_id, before=before, after=after)
    return after


def _visible(call: AdminCall) -> Select[Any]:
    columns = columns_of(Delivery, webhook_deliveries, webhook_events)
    joined = webhook_deliveries.join(webhook_events).join(webhooks)
    return select(*columns).select_from(joined).where(call.sees(webhooks.c.organization_id))
