"""The log of deliveries and their attempts, and retries on request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
from sqlalchemy import func, select, update

from contracts.errors import Conflict
from control.api.call import AdminCall
from control.api.resource import Resource
from control.api.schemas import Page, PageQuery
from control.webhooks.queue import LEASE_MARGIN_S
from control.webhooks.tables import DeliveryState, webhook_attempts, webhook_deliveries, webhook_events, webhooks
from control.webhooks.webhooks import WEBHOOKS
from storage.rows import columns_of, equal, fetch, record_of


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery of one event to one webhook. next_attempt_at: meaningful only while the delivery is pending."""

    id: UUID
    webhook_id: UUID
    event_id: UUID
    type: str
    state: DeliveryState
    attempts: int
    next_attempt_at: datetime
    created_at: datetime


DELIVERIES = Resource(
    "delivery",
    Delivery,
    webhook_deliveries,
    webhooks,
    joined=webhook_deliveries.join(webhook_events).join(webhooks),
    computed={"type": webhook_events.c.type},
)


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt. status: the status of the receiver's response; null without a response. error: null if the status
    was 2xx."""

    attempt: int
    at: datetime
    status: int | None
    error: str | None
    duration_ms: float


class DeliveryLog(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery with its attempts, the first attempt first."""

    delivery: Delivery
    attempts: list[DeliveryAttempt]


class DeliveryQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    state: DeliveryState | None = None


async def list_deliveries(call: AdminCall, webhook_id: UUID, query: DeliveryQuery) -> Page[Delivery]:
    """List a webhook's deliveries, newest first."""
    await WEBHOOKS.find(call, webhook_id)
    table = webhook_deliveries.c
    return await DELIVERIES.page(call, query, table.webhook_id == webhook_id, equal(table.state, query.state))


async def get_delivery(call: AdminCall, delivery_id: UUID) -> DeliveryLog:
    """Get a delivery with all its attempts."""
    delivery = await DELIVERIES.find(call, delivery_id)
    rows = await fetch(
        call.connection,
        select(*columns_of(DeliveryAttempt, webhook_attempts))
        .where(webhook_attempts.c.delivery_id == delivery_id)
        .order_by(webhook_attempts.c.attempt),
    )
    return DeliveryLog(delivery=delivery, attempts=[record_of(DeliveryAttempt, row) for row in rows])


async def retry_delivery(call: AdminCall, delivery_id: UUID) -> Delivery:
    """Send an event again now, with the same id, whether its delivery failed, succeeded or is pending."""
    before = await DELIVERIES.find(call, delivery_id, for_update=True)
    lease = timedelta(seconds=call.webhooks.timeout_s + LEASE_MARGIN_S)
    # A delivery that is due sooner than that may be in progress, and would be sent twice at once.
    if before.state is DeliveryState.PENDING and before.next_attempt_at <= datetime.now(UTC) + lease:
        raise Conflict(
            f"This delivery is under way, or is tried within {lease.total_seconds():g} s automatically; its attempts "
            "show the outcome."
        )
    webhook = await WEBHOOKS.find(call, before.webhook_id)
    again = {"state": DeliveryState.PENDING.value, "next_attempt_at": func.now()}
    await call.value(update(webhook_deliveries).where(webhook_deliveries.c.id == delivery_id).values(**again))
    after = await DELIVERIES.find(call, delivery_id)
    call.audit("delivery.retry", delivery_id, organization_id=webhook.organization_id, before=before, after=after)
    return after
