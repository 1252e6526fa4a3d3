"""`slipstream customers webhooks`: the URLs that get an organization's events, and the deliveries."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from slipstream.administration import administration
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.commands.projects import none_in, organization_option
from slipstream.hints import command
from slipstream.listing import names, state_of
from slipstream.operated import MAX_LISTED, ORGANIZATION, AdminOperation, PathValue, listed, operated

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.webhooks.webhook_deliveries import Delivery, DeliveryAttempt
    from control.webhooks.webhooks import Webhook, WebhookWithSecret
    from slipstream.settings import Settings

LOOK_EVERY_S = 0.2


@click.group()
def webhooks() -> None:
    """List, create, test and remove webhooks; show deliveries and resend one.

    \b
    Examples:
      slipstream customers webhooks create https://hooks.acme.example/slipstream --organization acme
      slipstream customers webhooks test https://hooks.acme.example/slipstream --organization acme
      slipstream customers webhooks deliveries https://hooks.acme.example/slipstream --organization acme --state failed
      slipstream customers webhooks retry 5f0c6d9e-…
    """


@listed(
    webhooks,
    AdminOperation("webhooks.webhooks.list_webhooks", ORGANIZATION, limit=MAX_LISTED),
    {"id": "id", "state": state_of, "events": lambda each: names(each.events), "url": "url"},
    none_in,
)
@organization_option
def list_command() -> None:
    """List an organization's webhooks, without their secrets, newest first."""


@operated(webhooks, AdminOperation("webhooks.webhooks.create_webhook", ORGANIZATION))
@organization_option
@click.option("--event", "events", multiple=True, help="Type of event to send. Repeat for several. Default: all types.")
@click.option("--description", default="")
@click.argument("url")
def create(made: WebhookWithSecret) -> str:
    """Send an organization's events to URL. Prints the webhook's id and the secret for its signatures, which is shown
    only once."""
    return f"id      {made.webhook.id}\nsecret  {made.secret}"


async def _remove(call: AdminCall, options: dict[str, Any]) -> Webhook:
    from control.webhooks.webhooks import delete_webhook

    webhook = await _named(call, options["organization"], options["which"])
    await delete_webhook(call, webhook.id)
    return webhook


@operated(webhooks, _remove)
@organization_option
@click.argument("which")
def remove(webhook: Webhook) -> str:
    """Remove the webhook WHICH (id or URL) and its delivery log."""
    return f"removed {webhook.url}"


@webhooks.command()
@deployment_options
@organization_option
@click.option(
    "--wait-s",
    type=click.FloatRange(0, 600),
    default=30,
    show_default=True,
    help="Longest wait for the outcome; 0 to not wait.",
)
@click.argument("which")
def test(deployment: Deployment, organization: str, wait_s: float, which: str) -> None:
    """Send a test event to the webhook WHICH (id or URL) and report the outcome. Exit code 1: it was not delivered."""
    from control.webhooks.webhooks import test_webhook

    settings = running_settings(*deployment)

    async def run() -> tuple[Webhook, Delivery | None, DeliveryAttempt | None]:
        async with administration(settings, "slipstream customers webhooks test") as call:
            webhook = await _named(call, organization, which)
            event_id: UUID = (await test_webhook(call, webhook.id)).event_id
        return webhook, *(await _tried(settings, webhook.id, event_id, wait_s) if wait_s else (None, None))

    webhook, delivery, attempt = asyncio.run(run())
    if not wait_s:
        print(f"a test event is on its way to {webhook.url}")
        return
    if delivery is None:
        print(f"not tried within {wait_s:g} s; is a worker running? ({command('status')})", file=sys.stderr)
    elif delivery.state.value == "delivered":
        print(f"delivered to {webhook.url}: {_outcome(attempt)}")
        return
    else:
        print(f"not delivered to {webhook.url}: {_outcome(attempt)}", file=sys.stderr)
    sys.exit(1)


async def _deliveries(call: AdminCall, options: dict[str, Any]) -> list[tuple[Delivery, DeliveryAttempt | None]]:
    from control.webhooks.webhook_deliveries import DeliveryQuery, list_deliveries
    from slipstream.administration import converted

    webhook = await _named(call, options.pop("organization"), options.pop("which"))
    page = await list_deliveries(call, webhook.id, converted(options, DeliveryQuery))
    return [(each, await _last_attempt(call, each.id)) for each in page.data]


@listed(
    webhooks,
    _deliveries,
    {
        "id": lambda each: each[0].id,
        "event": lambda each: each[0].type,
        "state": lambda each: each[0].state.value,
        "made (UTC)": lambda each: f"{each[0].created_at:%Y-%m-%d %H:%M:%S}",
        "attempts": lambda each: each[0].attempts,
        "next (UTC)": lambda each: (
            f"{each[0].next_attempt_at:%Y-%m-%d %H:%M:%S}" if each[0].state.value == "pending" else "-"
        ),
        "last outcome": lambda each: _outcome(each[1]),
    },
    name="deliveries",
)
@organization_option
@click.option("--state", type=click.Choice(["pending", "delivered", "failed"]), help="Only deliveries in this state.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True)
@click.argument("which")
def deliveries() -> None:
    """List the deliveries to the webhook WHICH (id or URL), newest first, with the outcome of the last attempt."""


@operated(webhooks, AdminOperation("webhooks.webhook_deliveries.retry_delivery", PathValue(None, ("delivery_id",))))
@click.argument("delivery_id", type=click.UUID)
def retry(delivery: Delivery) -> str:
    """Send DELIVERY_ID again now, whether it failed, was delivered, or waits for its next attempt."""
    to_show = command(f"customers webhooks deliveries {delivery.webhook_id}")
    return f"{delivery.type} will be sent again; `{to_show}` shows the progress"


async def _tried(
    settings: Settings, webhook_id: UUID, event_id: UUID, wait_s: float
) -> tuple[Delivery | None, DeliveryAttempt | None]:
    """The event's delivery once it is no longer pending, with its last attempt; None, None if it stays pending."""
    from control.webhooks.webhook_deliveries import DeliveryQuery, list_deliveries

    deadline = time.monotonic() + wait_s
    while True:
        async with administration(settings, "slipstream customers webhooks test") as call:
            page = await list_deliveries(call, webhook_id, DeliveryQuery(limit=100))
            for each in page.data:
                if each.event_id == event_id and each.state.value != "pending":
                    return each, await _last_attempt(call, each.id)
        if time.monotonic() > deadline:
            return None, None
        await asyncio.sleep(LOOK_EVERY_S)  # another process delivers it


async def _last_attempt(call: AdminCall, delivery_id: UUID) -> DeliveryAttempt | None:
    from control.webhooks.webhook_deliveries import get_delivery

    attempts: list[Any] = (await get_delivery(call, delivery_id)).attempts
    return attempts[-1] if attempts else None


async def _named(call: AdminCall, organization: str, which: str) -> Webhook:
    """The webhook by id, of any organization, or by URL in this one. Raises NotFound, InvalidField (a shared URL)."""
    from contracts.errors import NotFound
    from control.api.schemas import PageQuery
    from control.webhooks.webhooks import WEBHOOKS, list_webhooks
    from slipstream.tenants import only, organization_named

    try:
        return await WEBHOOKS.find(call, UUID(which))
    except ValueError:
        pass
    owner = await organization_named(call.connection, organization)
    known = (await list_webhooks(call, owner, PageQuery(limit=MAX_LISTED))).data
    found = [each for each in known if each.url == which]
    if not found:
        raise NotFound(f"{organization} has no webhook with the id or URL {which!r}")
    only("webhook", which, [each.id for each in found])
    return found[0]


def _outcome(attempt: DeliveryAttempt | None) -> str:
    if attempt is None:
        return "-"
    status = "" if attempt.status is None else f"status {attempt.status}"
    outcome = ", ".join(part for part in (status, attempt.error) if part)
    return f"{outcome} after {attempt.duration_ms:,.0f} ms"
