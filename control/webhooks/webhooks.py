"""Webhooks of an organization: the URLs that its events are sent to, and the secrets that sign them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID, uuid4

import msgspec
from msgspec import UNSET, Meta, UnsetType
from sqlalchemy import Select, func, insert, select, text

from contracts.errors import Conflict
from control.api.call import AdminCall
from control.api.key_resource import Rotation
from control.api.resource import Bound, Resource
from control.api.schemas import Body, Deleted, Description, Page, PageQuery
from control.api.sealed import seal
from control.webhooks.address import check_url
from control.webhooks.delivery import use_of
from control.webhooks.outbox import EventType
from control.webhooks.signature import new_secret
from control.webhooks.tables import DeliveryState, webhook_deliveries, webhook_events, webhooks

Url = Annotated[
    str,
    Meta(
        min_length=8,
        max_length=2_000,
        pattern=r"^https?://[!-~]+$(?![\s\S])",
        description="a URL such as https://hooks.acme.example/slipstream, http or https",
    ),
]
Events = Annotated[list[EventType], Meta(max_length=len(EventType))]


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook without its secret. events: the event types that it receives; null for all."""

    id: UUID
    organization_id: UUID
    url: str
    description: str
    events: list[EventType] | None
    created_at: datetime
    disabled_at: datetime | None
    previous_secret_expires_at: datetime | None


class WebhookWithSecret(msgspec.Struct, frozen=True, kw_only=True):
    """secret: verifies signatures. It is shown only in this response."""

    webhook: Webhook
    secret: str


class NewWebhook(Body, frozen=True, kw_only=True):
    """url: an https URL on the public internet, unless the deployment allows others. events: null for all types."""

    url: Url
    description: Description = ""
    events: Events | None = None


class WebhookChanges(Body, frozen=True, kw_only=True):
    """The fields to change. Omitted fields keep their values."""

    url: Url | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    events: Events | UnsetType | None = UNSET
    disabled: bool | UnsetType = UNSET


class WebhookTest(msgspec.Struct, frozen=True, kw_only=True):
    """The event that was recorded for delivery."""

    event_id: UUID


WEBHOOKS = Resource("webhook", Webhook, webhooks, webhooks, bound=Bound("webhooks", "webhooks", "delete"))


async def list_webhooks(call: AdminCall, organization_id: UUID, query: PageQuery) -> Page[Webhook]:
    """List an organization's webhooks, newest first."""
    await call.require_organization(organization_id)
    return await WEBHOOKS.page(call, query, webhooks.c.organization_id == organization_id)


async def create_webhook(call: AdminCall, organization_id: UUID, body: NewWebhook) -> WebhookWithSecret:
    """Create a webhook. Only this response contains its secret."""
    await call.require_organization(organization_id)
    check_url(body.url, allow_private=call.webhooks.allow_private_addresses)
    await WEBHOOKS.require_room(call, organization_id)
    webhook_id, secret = uuid4(), new_secret()
    webhook = await WEBHOOKS.create(
        call,
        id=webhook_id,
        organization_id=organization_id,
        secret=seal(call.pepper, use_of(webhook_id), secret.encode()),
        **WEBHOOKS.values_of(body),
    )
    return WebhookWithSecret(webhook=webhook, secret=secret)


async def get_webhook(call: AdminCall, webhook_id: UUID) -> Webhook:
    """Get a webhook."""
    return await WEBHOOKS.find(call, webhook_id)


async def update_webhook(call: AdminCall, webhook_id: UUID, body: WebhookChanges) -> Webhook:
    """Change, disable or enable a webhook. Disabling it abandons its pending deliveries."""
    before = await WEBHOOKS.find(call, webhook_id, for_update=True)
    if body.url is not UNSET:
        check_url(body.url, allow_private=call.webhooks.allow_private_addresses)
    return await WEBHOOKS.update(call, before, WEBHOOKS.values_of(body))


async def delete_webhook(call: AdminCall, webhook_id: UUID) -> Deleted:
    """Remove a webhook and its delivery log."""
    return await WEBHOOKS.delete(call, await WEBHOOKS.find(call, webhook_id, for_update=True))


async def rotate_webhook_secret(call: AdminCall, webhook_id: UUID, body: Rotation) -> WebhookWithSecret:
    """Give a webhook a new secret. Until the end of the overlap, deliveries carry a signature for each secret."""
    before = await WEBHOOKS.find(call, webhook_id, for_update=True)
    body.require_room(before.previous_secret_expires_at, "signs")
    secret = new_secret()
    values = {
        "previous_secret": webhooks.c.secret,
        "previous_secret_expires_at": body.until,
        "secret": seal(call.pepper, use_of(webhook_id), secret.encode()),
    }
    after = await WEBHOOKS.update(call, before, values, "rotate_secret")
    return WebhookWithSecret(webhook=after, secret=secret)


async def test_webhook(call: AdminCall, webhook_id: UUID) -> WebhookTest:
    """Send a `webhook.test` event to this webhook only, whatever event types it receives. Delivery is tried once.

    A setting limits how many test events of an organization may await delivery
    (`gateway.admin.webhooks.pending_tests`).
    """
    webhook = await WEBHOOKS.find(call, webhook_id)
    await call.lock_organization(webhook.organization_id)
    waiting, most = await call.value(_pending_tests(webhook.organization_id)), call.webhooks.pending_tests
    if waiting >= most:
        raise Conflict(
            f"{waiting} tests of this organization await delivery, and at most {most} may "
            "(gateway.admin.webhooks.pending_tests); try again after the next delivery attempt."
        )
    # `to_webhook_id` bypasses the fan-out, which would send it to the organization's other webhooks too.
    event = {"organization_id": webhook.organization_id, "type": EventType.TEST.value, "to_webhook_id": webhook_id}
    event_id = await call.value(
        insert(webhook_events).values(**event, data=text("'{}'::jsonb")).returning(webhook_events.c.id)
    )
    result = WebhookTest(event_id=event_id)
    call.audit("webhook.test", webhook_id, organization_id=webhook.organization_id, after=result)
    return result


def _pending_tests(organization_id: UUID) -> Select[Any]:
    return (
        select(func.count())
        .select_from(webhooks.join(webhook_deliveries).join(webhook_events))
        .where(
            webhooks.c.organization_id == organization_id,
            webhook_deliveries.c.state == DeliveryState.PENDING.value,
            webhook_events.c.type == EventType.TEST.value,
        )
    )
