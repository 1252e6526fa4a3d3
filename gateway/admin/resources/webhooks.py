"""Webhooks of an organization: where its events are sent, and with which secret they are signed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from contracts.errors import Conflict
from gateway.admin.bodies import Body, Deleted, Description, Page, PageQuery
from gateway.admin.call import AdminCall, not_found
from gateway.admin.endpoint import endpoint
from gateway.admin.pages import page_of, record_of
from gateway.admin.sealed import seal
from gateway.admin.secrets import Rotation
from gateway.admin.webhooks.address import check_url
from gateway.admin.webhooks.delivery import use_of
from gateway.admin.webhooks.outbox import EventType
from gateway.admin.webhooks.signature import new_secret
from gateway.tenants.roles import Permission

MAX_WEBHOOKS = 20
COLUMNS = "id, organization_id, url, description, events, created_at, disabled_at, previous_secret_expires_at"
SELECT = f"SELECT {COLUMNS} FROM gateway.webhooks"
PENDING_TESTS = f"""
SELECT count(*)
  FROM gateway.webhooks AS webhook
  JOIN gateway.webhook_deliveries AS delivery ON webhook_id = webhook.id AND state = 'pending'
  JOIN gateway.webhook_events AS event ON event.id = event_id AND type = '{EventType.TEST.value}'
 WHERE webhook.organization_id = $1
"""

Url = Annotated[str, Meta(min_length=8, max_length=2_000, pattern=r"^https?://[!-~]+$(?![\s\S])")]
Events = Annotated[list[EventType], Meta(max_length=len(EventType))]


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook without its secret. events: the types it gets, null for all."""

    id: UUID
    organization_id: UUID
    url: str
    description: str
    events: list[EventType] | None
    created_at: datetime
    disabled_at: datetime | None
    previous_secret_expires_at: datetime | None


class WebhookWithSecret(msgspec.Struct, frozen=True, kw_only=True):
    """secret: for verifying signatures; shown now and never again."""

    webhook: Webhook
    secret: str


class NewWebhook(Body, frozen=True, kw_only=True):
    """url: https, on the public internet unless the deployment allows others. events: null for all."""

    url: Url
    description: Description = ""
    events: Events | None = None


class WebhookChanges(Body, frozen=True, kw_only=True):
    """What to change; what is left out stays."""

    url: Url | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    events: Events | UnsetType | None = UNSET
    disabled: bool | UnsetType = UNSET


class WebhookTest(msgspec.Struct, frozen=True, kw_only=True):
    """The event that was recorded for delivery."""

    event_id: UUID


async def find_webhook(call: AdminCall, webhook_id: UUID, *, for_update: bool = False) -> Webhook:
    """Raises NotFound, for another organization's principal too."""
    row = await call.connection.fetchrow(
        f"{SELECT} WHERE id = $1 AND ($2::uuid IS NULL OR organization_id = $2) {'FOR UPDATE' if for_update else ''}",
        webhook_id,
        call.scope,
    )
    if row is None:
        raise not_found("webhook", webhook_id)
    return record_of(Webhook, row)


@endpoint("GET", "/organizations/{organization_id}/webhooks", Permission.WEBHOOKS_READ)
async def list_webhooks(call: AdminCall, organization_id: UUID, query: PageQuery) -> Page[Webhook]:
    """List an organization's webhooks, newest first."""
    await call.require_organization(organization_id)
    where = call.where()
    where.add("organization_id = {}", organization_id)
    return await page_of(call.connection, Webhook, SELECT, where, query, table="webhooks")


@endpoint("POST", "/organizations/{organization_id}/webhooks", Permission.WEBHOOKS_WRITE)
async def create_webhook(call: AdminCall, organization_id: UUID, body: NewWebhook) -> WebhookWithSecret:
    """Make a webhook. The answer holds its secret, this once."""
    await call.require_organization(organization_id)
    check_url(body.url, allow_private=call.webhooks.allow_private_addresses)
    await _lock_organization(call, organization_id)
    count = await call.connection.fetchval(
        "SELECT count(*) FROM gateway.webhooks WHERE organization_id = $1", organization_id
    )
    if count >= MAX_WEBHOOKS:
        raise Conflict(f"An organization has at most {MAX_WEBHOOKS} webhooks; delete one first.")
    webhook_id = await call.connection.fetchval("SELECT gen_random_uuid()")
    secret = new_secret()
    row = await call.connection.fetchrow(
        "INSERT INTO gateway.webhooks (id, organization_id, url, description, events, secret)"
        f" VALUES ($1, $2, $3, $4, $5, $6) RETURNING {COLUMNS}",
        webhook_id,
        organization_id,
        body.url,
        body.description,
        _unique(body.events),
        seal(call.pepper, use_of(webhook_id), secret.encode()),
    )
    webhook = record_of(Webhook, row)
    call.audit("webhook.create", webhook.id, organization_id=organization_id, after=webhook)
    return WebhookWithSecret(webhook=webhook, secret=secret)


@endpoint("GET", "/webhooks/{webhook_id}", Permission.WEBHOOKS_READ)
async def get_webhook(call: AdminCall, webhook_id: UUID) -> Webhook:
    """One webhook."""
    return await find_webhook(call, webhook_id)


@endpoint("PATCH", "/webhooks/{webhook_id}", Permission.WEBHOOKS_WRITE)
async def update_webhook(call: AdminCall, webhook_id: UUID, body: WebhookChanges) -> Webhook:
    """Change a webhook, disable or enable it. What is on its way to a disabled one is given up."""
    before = await find_webhook(call, webhook_id, for_update=True)
    if body.url is not UNSET:
        check_url(body.url, allow_private=call.webhooks.allow_private_addresses)
    row = await call.connection.fetchrow(
        "UPDATE gateway.webhooks SET url = $2, description = $3, events = $4,"
        f" disabled_at = CASE WHEN $5 THEN coalesce(disabled_at, now()) END WHERE id = $1 RETURNING {COLUMNS}",
        webhook_id,
        before.url if body.url is UNSET else body.url,
        before.description if body.description is UNSET else body.description,
        _unique(before.events if body.events is UNSET else body.events),
        before.disabled_at is not None if body.disabled is UNSET else body.disabled,
    )
    after = record_of(Webhook, row)
    call.audit("webhook.update", after.id, organization_id=after.organization_id, before=before, after=after)
    return after


@endpoint("DELETE", "/webhooks/{webhook_id}", Permission.WEBHOOKS_WRITE)
async def delete_webhook(call: AdminCall, webhook_id: UUID) -> Deleted:
    """Remove a webhook and the log of its deliveries."""
    before = await find_webhook(call, webhook_id, for_update=True)
    await call.connection.execute("DELETE FROM gateway.webhooks WHERE id = $1", webhook_id)
    call.audit("webhook.delete", webhook_id, organization_id=before.organization_id, before=before)
    return Deleted(id=webhook_id)


@endpoint("POST", "/webhooks/{webhook_id}/rotate-secret", Permission.WEBHOOKS_WRITE)
async def rotate_webhook_secret(call: AdminCall, webhook_id: UUID, body: Rotation) -> WebhookWithSecret:
    """Give a webhook a new secret; until the end of the overlap deliveries carry a signature by each."""
    before = await find_webhook(call, webhook_id, for_update=True)
    until, now = before.previous_secret_expires_at, datetime.now(UTC)
    if until is not None and until > now and not body.end_previous:
        raise Conflict(
            f"The secret before the last rotation still signs until {until.isoformat()}. Wait, or send "
            "'end_previous': true to end it now.",
            param="end_previous",
        )
    secret = new_secret()
    await call.connection.execute(
        "UPDATE gateway.webhooks SET previous_secret = secret, previous_secret_expires_at = $2, secret = $3"
        " WHERE id = $1",
        webhook_id,
        now + timedelta(seconds=body.overlap_s),
        seal(call.pepper, use_of(webhook_id), secret.encode()),
    )
    after = await find_webhook(call, webhook_id)
    call.audit("webhook.rotate_secret", after.id, organization_id=after.organization_id, before=before, after=after)
    return WebhookWithSecret(webhook=after, secret=secret)


@endpoint("POST", "/webhooks/{webhook_id}/test", Permission.WEBHOOKS_WRITE)
async def test_webhook(call: AdminCall, webhook_id: UUID) -> WebhookTest:
    """Send a `webhook.test` event to this webhook alone, whatever types it gets. It is tried once.

    A setting of the deployment bounds how many tests of an organization may wait for their delivery.
    """
    webhook = await find_webhook(call, webhook_id)
    await _lock_organization(call, webhook.organization_id)
    waiting, most = await call.connection.fetchval(PENDING_TESTS, webhook.organization_id), call.webhooks.pending_tests
    if waiting >= most:
        raise Conflict(
            f"{waiting} tests of this organization wait for their delivery, and at most {most} may "
            "(gateway.admin.webhooks.pending_tests); try again when one has been tried."
        )
    # Not by the fan-out, which would send it to the organization's other webhooks too.
    event_id = await call.connection.fetchval(
        "INSERT INTO gateway.webhook_events (organization_id, type, data, to_webhook_id)"
        " VALUES ($1, $2, '{}', $3) RETURNING id",
        webhook.organization_id,
        EventType.TEST.value,
        webhook_id,
    )
    result = WebhookTest(event_id=event_id)
    call.audit("webhook.test", webhook_id, organization_id=webhook.organization_id, after=result)
    return result


async def _lock_organization(call: AdminCall, organization_id: UUID) -> None:
    """Until the end of the transaction: of two requests at once not both can be the last that fits."""
    await call.connection.execute(
        "SELECT 1 FROM gateway.organizations WHERE id = $1 FOR NO KEY UPDATE", organization_id
    )


def _unique(events: list[EventType] | None) -> list[str] | None:
    return None if events is None else sorted({event.value for event in events})


ENDPOINTS = (
    list_webhooks,
    create_webhook,
    get_webhook,
    update_webhook,
    delete_webhook,
    rotate_webhook_secret,
    test_webhook,
)
